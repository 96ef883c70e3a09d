"""``check`` and ``grade``: what a learner and nbgrader call in a notebook."""

from __future__ import annotations

import os
import sys
from typing import Any

from autograder import client, ledger, quizzes
from autograder.exercise import Exercise, Quiz, UnknownExercise, find
from autograder.verdict import Verdict

#: The seed of ``grade`` where no instructor gave another: enough to try the hidden cases for oneself.
_DEFAULT_SEED = 1


class CheckFailed(AssertionError):
    """An answer is not right yet; the text is one line, the table above it says more."""

    def _render_traceback_(self) -> list[str]:
        """What IPython shows: one line, and none of our own frames."""
        return [f"{type(self).__name__}: {self}"]


def check(exercise_id: str, *answers: Any) -> None:
    """Try an answer on the visible cases, show a table, and remember the result.

    Args:
        exercise_id: such as "ring_all_reduce".
        answers: what the exercise asks for, as the objects themselves, in its order.

    Raises:
        CheckFailed: the answer is not right yet, or is none.
    """
    if os.environ.get("NBGRADER_EXECUTION") == "autograde":
        return  # the hidden cases follow in the same cell; a visible failure must not swallow partial credit
    verdict = _ask(exercise_id, answers, hidden=False)
    ledger.record(verdict)
    show(verdict)
    exercise = find(exercise_id)
    if isinstance(exercise, Quiz) and verdict.passed:
        quizzes.explain(exercise)
    if not verdict.passed:
        raise CheckFailed(verdict.one_line()) from None


def grade(exercise_id: str, *answers: Any) -> float:
    """The points that an answer earns, hidden cases included.

    When nbgrader grades, the judge outside the kernel draws the hidden cases from the instructor's seed
    and keeps its own record of the verdict; the number that is returned here is for show.
    """
    try:
        verdict = _ask(exercise_id, answers, hidden=True)
    except CheckFailed as failed:
        print(failed)
        return 0.0
    if not verdict.passed:
        show(verdict)
    return verdict.points


def show(verdict: Verdict) -> None:
    """Show a verdict: a table in a notebook, text elsewhere."""
    if "IPython" in sys.modules and sys.modules["IPython"].get_ipython() is not None:
        from IPython.display import display

        display({"text/html": verdict.html(), "text/plain": verdict.text()}, raw=True)
    else:
        print(verdict.text())


def _ask(exercise_id: str, answers: tuple, hidden: bool) -> Verdict:
    try:
        exercise = find(exercise_id)
        _refuse_wrong_count(exercise, answers)
        return client.ask(exercise, answers, hidden, seed=_DEFAULT_SEED if hidden else 0)
    except (UnknownExercise, TypeError, client.JudgeError) as error:
        raise CheckFailed(str(error)) from None


def _refuse_wrong_count(exercise: Exercise, answers: tuple) -> None:
    if len(answers) != len(exercise.names):
        wanted = ", ".join((f'"{exercise.id}"', *exercise.names))
        raise TypeError(f"call it as check({wanted}); {len(answers)} answers were given")
