"""The errors that a learner meets when ranks fail, and how they look in a notebook."""

from __future__ import annotations

from rankzero.ranks.outcome import Outcome
from rankzero.ranks.report import Report


class LaunchError(RuntimeError):
    """The ranks could not be started."""


class RankError(RuntimeError):
    """A rank raised an exception, or its process ended.

    Attributes:
        report: what every rank was doing, as a :class:`~rankzero.ranks.report.Report`.
        outcome: everything that is known of the call.
    """

    def __init__(self, message: str, outcome: Outcome, report: Report):
        super().__init__(message)
        self.outcome = outcome
        self.report = report

    def _render_traceback_(self) -> list[str]:
        """What IPython shows in place of a traceback through our own code."""
        return [f"{type(self).__name__}: {self}"]


class HangError(RankError):
    """Ranks did not come back: the report says which rank waits where, and where their calls differ."""


class Interrupted(KeyboardInterrupt):
    """The learner interrupted a call on ranks; its text says where they were."""

    def __init__(self, message: str, report: Report):
        super().__init__(message)
        self.report = report

    def _render_traceback_(self) -> list[str]:
        return [f"KeyboardInterrupt: {self}"]


def error_of(outcome: Outcome) -> RankError:
    """The error for a call that did not finish on all ranks."""
    report = Report.of(outcome)
    if report.culprit is None:
        return HangError(str(report), outcome, report)
    alike = len({row.words() for row in report.rows}) == 1
    return RankError(report.failure if alike else f"{report.failure}\n\n{report.table()}", outcome, report)
