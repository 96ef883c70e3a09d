"""What a judge says of an answer, and how it looks as JSON, text and HTML."""

from __future__ import annotations

from dataclasses import asdict, dataclass, field
from html import escape
from typing import Any


@dataclass(frozen=True)
class CaseResult:
    """One case: passed True or False, or None if it was not tried because something before it failed."""

    name: str
    passed: bool | None
    message: str = ""
    hidden: bool = False


@dataclass(frozen=True)
class JudgementResult:
    """One judgement: passed None means that it could not be reached."""

    name: str
    passed: bool | None
    points: float
    max_points: float


@dataclass(frozen=True)
class Verdict:
    """The verdict on one answer.

    ``points`` counts the judgements that passed; ``output`` is what the ranks printed in the case that
    failed first.
    """

    exercise: str
    passed: bool
    points: float
    max_points: float
    cases: list[CaseResult]
    judgements: list[JudgementResult]
    output: list[str] = field(default_factory=list)

    @classmethod
    def from_json(cls, data: dict[str, Any]) -> Verdict:
        """The verdict that :meth:`as_json` wrote."""
        cases = [CaseResult(**case) for case in data["cases"]]
        judgements = [JudgementResult(**judgement) for judgement in data["judgements"]]
        return cls(**{**data, "cases": cases, "judgements": judgements})

    def as_json(self) -> dict[str, Any]:
        """Everything, as plain data."""
        return asdict(self)

    def public_json(self) -> dict[str, Any]:
        """The object that ``rankzero check --json`` prints. A case that was not tried has not passed."""
        cases = [
            {
                "name": case.name,
                "passed": bool(case.passed),
                "message": case.message or ("" if case.passed else _NOT_TRIED),
            }
            for case in self.cases
        ]
        return {
            "exercise": self.exercise,
            "passed": self.passed,
            "points": self.points,
            "max_points": self.max_points,
            "cases": cases,
        }

    @property
    def first_failure(self) -> CaseResult | None:
        """The first case that failed."""
        return next((case for case in self.cases if case.passed is False), None)

    def headline(self) -> str:
        """One line: the exercise, and how it stands."""
        if self.passed:
            return f"{self.exercise}: right, {self.points:g} of {self.max_points:g} points"
        return f"{self.exercise}: not yet, {self.points:g} of {self.max_points:g} points"

    def one_line(self) -> str:
        """The headline and the first line of the first failure."""
        failure = self.first_failure
        first = failure.message.strip().splitlines()[0] if failure and failure.message.strip() else ""
        return self.headline() + (f". {failure.name}: {first}" if failure else "")

    @property
    def _tried(self) -> list[CaseResult]:
        return [case for case in self.cases if case.passed is not None]

    @property
    def _untried(self) -> str:
        """In words, how many cases were not tried; empty if all were."""
        count = len(self.cases) - len(self._tried)
        return f"{count} more case{'s were' if count > 1 else ' was'} not tried after that" if count else ""

    def text(self) -> str:
        """A small table for a terminal."""
        marks = {True: "ok", False: "no", None: "--"}
        lines = [self.headline()]
        for judgement in self.judgements:
            lines.append(
                f"  {marks[judgement.passed]}  {judgement.name} ({judgement.points:g}/{judgement.max_points:g})"
            )
        lines += [""] if self.cases else []
        for case in self._tried:
            lines.append(f"  {marks[case.passed]}  {case.name}")
            lines += [f"        {line}" for line in case.message.splitlines()]
        lines += [f"  --  {self._untried}"] if self._untried else []
        for rank, printed in enumerate(self.output):
            lines += [f"  rank {rank} printed: {line}" for line in printed.splitlines()[:5]]
        return "\n".join(lines)

    def html(self) -> str:
        """A small table for a notebook, in the notebook's own colours."""
        rows = "".join(
            f"<tr><td style='{_CELL}'>{_badge(judgement.passed)}</td><td style='{_CELL}'>{escape(judgement.name)}</td>"
            f"<td style='{_CELL}'>{judgement.points:g} of {judgement.max_points:g}</td></tr>"
            for judgement in self.judgements
        )
        cases = "".join(_case_row(case) for case in self._tried)
        if self._untried:
            cases += f"<tr><td style='{_CELL}'>{_badge(None)}</td><td style='{_CELL}'>{self._untried}</td></tr>"
        printed = "".join(
            f"<div>rank {rank} printed <pre style='margin:0'>{escape(text[:2000])}</pre></div>"
            for rank, text in enumerate(self.output)
            if text.strip()
        )
        return (
            f"<div style='border-left:4px solid {_COLOURS[self.passed]};padding:0 0 0 12px;margin:4px 0'>"
            f"<p style='margin:4px 0'><b>{escape(self.headline())}</b></p>"
            "<table style='margin:4px 0'><tr><th></th>"
            f"<th style='{_CELL}'>judged</th><th style='{_CELL}'>points</th></tr>"
            f"{rows}</table>"
            f"<details{'' if self.passed else ' open'}><summary>{len(self.cases)} cases</summary>"
            f"<table style='margin:4px 0'>{cases}</table></details>{printed}</div>"
        )


#: Readable on light and dark ground, and apart for the colour-blind (blue against vermilion).
_COLOURS = {True: "#1B78BC", False: "#D55E00", None: "#767676"}
_NOT_TRIED = "not tried, because something before it failed"
_CELL = "text-align:left;vertical-align:top;padding:2px 12px 2px 6px"
_WORDS = {True: "right", False: "wrong", None: "not tried"}


def _badge(passed: bool | None) -> str:
    return f"<b style='color:{_COLOURS[passed]};white-space:nowrap'>{_WORDS[passed]}</b>"


def _case_row(case: CaseResult) -> str:
    style = "margin:2px 0 6px;white-space:pre-wrap;text-align:left;background:transparent;padding:0"
    message = f"<pre style='{style}'>{escape(case.message)}</pre>" if case.message else ""
    return (
        f"<tr><td style='{_CELL}'>{_badge(case.passed)}</td><td style='{_CELL}'>{escape(case.name)}{message}</td></tr>"
    )
