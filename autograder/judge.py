"""Decides whether an answer is right, in a process that never runs a line of it.

The answer runs in ranks of its own and sends back plain data; what is expected stays here.
"""

from __future__ import annotations

import importlib
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import cloudpickle

from autograder import rankside
from autograder.exercise import Case, Exercise, Judgement
from autograder.verdict import CaseResult, JudgementResult, Verdict
from rankzero.observe.observation import Observation
from rankzero.ranks.errors import LaunchError
from rankzero.ranks.launch import Launch
from rankzero.ranks.outcome import Outcome
from rankzero.ranks.report import Report

_LOAD_SECONDS = 15.0
#: What a rank may send back in one case; right answers need a few megabytes.
_MAX_RESULT_BYTES = 256 * 2**20


@dataclass(frozen=True)
class Answer:
    """An answer on its way to the ranks: the source of a FILE, or a notebook's pickled objects."""

    load: Callable[..., list[str]]
    arguments: tuple[Any, ...]

    @classmethod
    def of_source(cls, source: str, filename: str) -> Answer:
        """The answer that a file's text holds."""
        return cls(rankside.load_source, (source, filename))

    @classmethod
    def of_pickle(cls, pickled: bytes) -> Answer:
        """The answer that a notebook pickled: a tuple of the handed-in objects. It is not unpickled here."""
        return cls(rankside.load_pickle, (pickled,))


def judge(exercise: Exercise, answer: Answer, hidden: bool = False, seed: int = 0) -> Verdict:
    """Run the exercise's cases on the answer and judge what was seen.

    Args:
        hidden: add the hidden cases, drawn from ``seed``.
    """
    return _Run(exercise, answer, exercise.draw(seed, hidden)).verdict()


class _Run:
    """One judged run. Cases of a world size share one launch for as long as the answer behaves.

    The first judgement of an exercise on several ranks is the core: an answer that fails it is wrong, and
    nothing more is tried, since every try costs time. One that fails another judgement of value keeps what
    it earned, but no judgement of *how* counts.
    """

    def __init__(self, exercise: Exercise, answer: Answer, cases: list[Case]):
        self._exercise = exercise
        self._answer = answer
        self._cases = cases
        self._results: dict[int, CaseResult] = {}
        self._failed: set[str] = set()
        self._passed: set[tuple[str, int]] = set()
        self._over = False
        self._output: list[str] = []
        # Drives travel by value, so that ranks need no exercise module, whose oracles they must not see.
        for name in {exercise.drive.__module__, "autograder.exercises.common"}:
            cloudpickle.register_pickle_by_value(importlib.import_module(name))

    def verdict(self) -> Verdict:
        """Run everything that can still matter."""
        # Visible cases first, so that a learner meets a failure that he can see before one that he cannot.
        launches: dict[tuple[bool, int], list[int]] = {}
        for number, case in sorted(enumerate(self._cases), key=lambda numbered: numbered[1].hidden):
            launches.setdefault((case.hidden, case.ranks), []).append(number)
        for (_, ranks), numbers in launches.items():
            while not self._over and (numbers := self._pending(numbers)):
                self._launch(ranks, numbers)
        return self._summary()

    def _pending(self, numbers: list[int]) -> list[int]:
        return [number for number in numbers if number not in self._results and self._alive(self._cases[number])]

    def _alive(self, case: Case) -> bool:
        """Whether a judgement that the case feeds can still be passed."""
        return any(name not in self._failed for name in case.judgements)

    def _launch(self, ranks: int, numbers: list[int]) -> None:
        """Run cases in one launch, until it is broken."""
        exercise = self._exercise
        try:
            launch = Launch(ranks, "auto" if exercise.process_group else None, _MAX_RESULT_BYTES)
        except LaunchError as error:
            return self._stop("start", f"The ranks could not be started: {error}")
        try:
            names = (*exercise.names, *exercise.builds_on)
            arguments = ((*self._answer.arguments, names), {})
            outcome = launch.call(self._answer.load, [arguments] * ranks, timeout=_LOAD_SECONDS, plain=True)
            if not outcome.finished:
                return self._stop("load", _failure(outcome), outcome)
            missing = outcome.result(0)
            if missing:
                return self._stop("load", f"The answer does not define {_listed(missing)}.")
            for number in numbers:
                case = self._cases[number]
                if not self._alive(case):
                    continue
                arguments = [((exercise.drive, inputs), {}) for inputs in case.inputs]
                outcome = launch.call(
                    rankside.drive, arguments, timeout=case.deadline_seconds, watched=True, plain=True
                )
                self._judge(number, case, outcome)
                if self._over or not launch.usable:
                    return None
        finally:
            launch.close()

    def _judge(self, number: int, case: Case, outcome: Outcome) -> None:
        if not outcome.finished:
            self._fail(number, case, case.judgements, _failure(outcome), outcome)
            self._over = self._over or outcome.stopped in ("deadline", "deadlock")
            return
        try:
            seen = outcome.observation()
        except ValueError as error:
            self._fail(number, case, case.judgements, f"What the ranks sent back cannot be read: {error}.", outcome)
            return
        for judgement in self._exercise.judgements:
            if judgement.name in case.judgements and judgement.name not in self._failed:
                message = _verdict(judgement, case, seen)
                if message is None:
                    self._passed.add((judgement.name, number))
                else:
                    self._fail(number, case, (judgement.name,), message, outcome)
        self._results.setdefault(number, CaseResult(case.name, True, hidden=case.hidden))

    def _fail(self, number: int, case: Case, judgements: tuple[str, ...], message: str, outcome: Outcome) -> None:
        self._results.setdefault(number, CaseResult(case.name, False, message, case.hidden))
        self._output = self._output or [text[:4000] for text in outcome.output]
        self._failed.update(judgements)
        core, *_ = all_judgements = self._exercise.judgements
        self._over = self._over or (core.name in judgements and self._exercise.process_group)
        if any(judgement.name in judgements and not judgement.how for judgement in all_judgements):
            self._failed.update(judgement.name for judgement in all_judgements if judgement.how)

    def _stop(self, name: str, message: str, outcome: Outcome | None = None) -> None:
        """Nothing can be judged at all."""
        self._over = True
        self._results = {}
        self._cases = [Case(name, [], ())]
        self._results[0] = CaseResult(name, False, message)
        self._failed.update(judgement.name for judgement in self._exercise.judgements)
        self._output = [text[:4000] for text in outcome.output] if outcome else []

    def _summary(self) -> Verdict:
        results = [
            self._results.get(number, CaseResult(case.name, None, hidden=case.hidden))
            for number, case in enumerate(self._cases)
        ]
        values = [judgement.name for judgement in self._exercise.judgements if not judgement.how]
        judgements = []
        for judgement in self._exercise.judgements:
            fed = [number for number, case in enumerate(self._cases) if judgement.name in case.judgements]
            passed = bool(fed) and all((judgement.name, number) in self._passed for number in fed)
            passed = passed and judgement.name not in self._failed
            wrong = any(
                results[number].passed is False and (judgement.name, number) not in self._passed for number in fed
            )
            if judgement.how and self._failed.intersection(values):
                wrong = False  # it could not count any more, so nothing is said of it
            points = judgement.points if passed else 0.0
            state = True if passed else False if wrong else None
            judgements.append(JudgementResult(judgement.name, state, points, judgement.points))
        passed = all(judgement.passed for judgement in judgements)
        points = float(sum(judgement.points for judgement in judgements))
        return Verdict(self._exercise.id, passed, points, self._exercise.points, results, judgements, self._output)


def _verdict(judgement: Judgement, case: Case, seen: Observation) -> str | None:
    """A judgement's verdict; a result so odd that it cannot even be compared is wrong, too."""
    try:
        return judgement.verdict(case, seen)
    except Exception as error:
        return f"What came back could not be compared ({type(error).__name__}: {error}); look at its type and shape."


def _failure(outcome: Outcome) -> str:
    """What the learner reads when ranks raised, died or hung."""
    report = Report.of(outcome)
    return report.failure or str(report)


def _listed(names: list[str]) -> str:
    return " and ".join(f"`{name}`" for name in names)
