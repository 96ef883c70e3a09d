"""Exercises whose answer is a formula: calls with numbers, and the usual wrong formulas."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable
from typing import Any

from autograder import compare
from autograder.exercise import Case
from rankzero.observe.observation import Observation

#: A usual wrong formula, and what to say about it.
Slip = tuple[Callable[..., float], str]


def formula_case(
    name: str, calls: list[tuple], *judgements: str, hidden: bool = False, deadline_seconds: float = 5.0
) -> Case:
    """A case of several calls, each a tuple of arguments."""
    return Case(name, [{"calls": calls}], judgements, hidden=hidden, deadline_seconds=deadline_seconds)


def formula_verdict(
    case: Case,
    seen: Observation,
    truth: Callable[..., float],
    signature: str | Callable[..., str],
    slips: Iterable[Slip],
    tolerance: float = 1e-6,
    also: Callable[..., float] | None = None,
) -> str | None:
    """Compare the results with ``truth``; where one is wrong, say which of ``slips`` gives just that.

    Args:
        signature: names of the arguments, or a function that words them.
        tolerance: the relative error that is still right.
        also: another formula whose results are right, too.
    """
    for arguments, got in zip(case.inputs[0]["calls"], seen.results[0], strict=True):
        right = truth(*arguments)
        if type(got) is not float:
            hint = " Is a `return` missing?" if got is None else ""
            return f"It returned {compare.describe(got)}; a number was expected.{hint}"
        if math.isclose(got, right, rel_tol=tolerance, abs_tol=1e-15):
            continue
        if also is not None and math.isclose(got, also(*arguments), rel_tol=tolerance):
            continue
        cause = "A negative number: did a 32-bit integer overflow?" if got < 0 <= right else ""
        cause = cause or slip_of(slips, arguments, got, max(1e-6, tolerance / 20))
        if case.hidden:
            return f"The result is wrong. {cause}".strip()
        shown = signature(*arguments) if callable(signature) else f"{signature} = {', '.join(map(_word, arguments))}"
        return f"For {shown} it gives {_number(got)}; {_number(right)} was expected. {cause}".strip()
    return None


def slip_of(slips: Iterable[Slip], arguments: tuple, got: float, tolerance: float = 1e-6) -> str:
    """What to say about a wrong result: the sentence of the first slip that gives the same number, or nothing."""
    return next((say for slip, say in slips if _matches(slip, arguments, got, tolerance)), "")


def _matches(slip: Callable[..., float], arguments: tuple, got: float, tolerance: float) -> bool:
    try:
        return math.isclose(got, slip(*arguments), rel_tol=tolerance)
    except ZeroDivisionError:
        return False


def _word(value: Any) -> str:
    return f"{value:,}" if isinstance(value, int) else f"{value:g}"


def _number(value: float) -> str:
    return f"{value:,.0f}" if value == round(value) and abs(value) >= 1e6 else f"{value:.6g}"
