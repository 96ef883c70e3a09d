"""What an exercise is: plain data. Cases to run, and judgements over what was seen while they ran."""

from __future__ import annotations

import hashlib
import importlib
import pkgutil
import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from difflib import get_close_matches
from types import SimpleNamespace
from typing import Any

from rankzero.observe.observation import Observation

#: What the rank side of an exercise is: it gets the handed-in names and one rank's inputs, calls the
#: answer, and returns plain data (tensors, numbers, strings, None, lists, tuples, dicts of these).
Drive = Callable[[SimpleNamespace, dict[str, Any]], Any]


@dataclass(frozen=True)
class Case:
    """One try of an answer: what each rank is given, and what the judge keeps for itself.

    ``inputs`` holds one dict per rank; it travels to the ranks. ``expected`` never leaves the judge.
    ``judgements`` names the judgements that this case feeds. A ``hidden`` case is run by ``grade`` and by
    ``rankzero check --hidden`` only, and its inputs are not shown to the learner.
    """

    name: str
    inputs: Sequence[dict[str, Any]]
    judgements: tuple[str, ...]
    expected: Any = None
    hidden: bool = False
    deadline_seconds: float = 5.0

    @property
    def ranks(self) -> int:
        return len(self.inputs)


@dataclass(frozen=True)
class Judgement:
    """One thing that is judged, with the points it earns if every one of its cases passes.

    ``verdict(case, seen)`` returns None when all is well, else a sentence for the learner: what was seen,
    what was expected, and the likeliest cause. A judgement of *how* (traffic, rounds, shards …) counts only
    if the judgements of value pass.
    """

    name: str
    points: float
    verdict: Callable[[Case, Observation], str | None]
    how: bool = False


@dataclass(frozen=True)
class Exercise:
    """One exercise: what is handed in, how it is driven, and what is judged.

    On several ranks the first of ``judgements`` is the core: an answer that fails it earns nothing.

    ``names`` are the names to hand in, in the order of ``check(id, *answers)``. ``builds_on`` are names that
    a FILE must define too, because the answer uses them. ``cases(rng)`` draws the cases; visible cases
    always come from seed 0, hidden ones from the instructor's seed. ``process_group`` is False for
    exercises of a single process, which then run in a rank without torch.distributed.
    """

    id: str
    lesson: str
    names: tuple[str, ...]
    judgements: tuple[Judgement, ...]
    cases: Callable[[random.Random], list[Case]]
    drive: Drive
    builds_on: tuple[str, ...] = ()
    process_group: bool = True

    @property
    def points(self) -> float:
        return float(sum(judgement.points for judgement in self.judgements))

    def draw(self, seed: int, hidden: bool) -> list[Case]:
        """The cases of a run: the visible ones from seed 0, and with ``hidden`` the hidden ones from ``seed``."""
        drawn = [case for case in self.cases(random.Random(0)) if not case.hidden]
        if hidden:
            drawn += [case for case in self.cases(random.Random(seed)) if case.hidden]
        return drawn


@dataclass(frozen=True)
class Question:
    """One quiz question. The right letter is kept only as a hash; see :func:`hash_letter`."""

    key: str
    text: str
    options: dict[str, str]
    right: str
    why: str


def hash_letter(exercise_id: str, key: str, letter: str) -> str:
    """The hash under which a right letter is stored: enough to keep it from being read in passing."""
    return hashlib.sha256(f"{exercise_id}/{key}/{letter.strip().lower()}".encode()).hexdigest()[:16]


@dataclass(frozen=True)
class Quiz(Exercise):
    """A quiz is an exercise whose answer is a dict of letters."""

    questions: tuple[Question, ...] = field(default=())


class UnknownExercise(LookupError):
    """No exercise has that id; the message suggests the nearest one."""


def lesson_exercises(lesson: str) -> list[Exercise]:
    """The exercises of a lesson such as ``"04_collectives"``, in the lesson's order."""
    return importlib.import_module(f"autograder.exercises.{lesson}").EXERCISES


def all_exercises() -> list[Exercise]:
    """Every exercise of the course, in the order of the lessons."""
    import autograder.exercises as room

    lessons = sorted(module.name for module in pkgutil.iter_modules(room.__path__) if module.name[0].isdigit())
    return [exercise for lesson in lessons for exercise in lesson_exercises(lesson)]


def find(exercise_id: str) -> Exercise:
    """The exercise with that id.

    Raises:
        UnknownExercise: no exercise is called so.
    """
    known = {exercise.id: exercise for exercise in all_exercises()}
    if exercise_id in known:
        return known[exercise_id]
    near = get_close_matches(str(exercise_id), known, n=1, cutoff=0.4)
    hint = f"; did you mean {near[0]!r}?" if near else f"; there are: {', '.join(known)}"
    raise UnknownExercise(f"there is no exercise {exercise_id!r}{hint}")
