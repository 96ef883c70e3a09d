"""Turns a wrong tensor into the likeliest cause, in a sentence or two for the learner."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

from autograder.fingerprints import FINGERPRINTS, Wrong, close
from rankzero.ranks.wire import Opaque


def describe(value: Any) -> str:
    """What ``value`` is, in a few words: "None", "a list", "a float32 tensor of shape [3]"."""
    if value is None:
        return "None"
    if isinstance(value, Tensor):
        return f"{_article(dtype_name(value))} tensor of shape {list(value.shape)}"
    if isinstance(value, Opaque):
        return f"an object of type {value.type_name}"
    return _article(type(value).__name__)


def dtype_name(tensor: Tensor) -> str:
    """The dtype as learners write it, without ``torch.``."""
    return str(tensor.dtype).removeprefix("torch.")


def _article(noun: str) -> str:
    return f"{'an' if noun[:1] in 'aeio' else 'a'} {noun}"


def summation_slack(parts: Sequence[Tensor]) -> Tensor:
    """The error, elementwise in float64, that summing ``parts`` in any order in their dtype may make.

    Each of the additions rounds once, by at most half an epsilon of the partial sum; casting the exact sum
    for the comparison rounds once more. Integers are exact.
    """
    magnitude = sum(part.abs().double() for part in parts)
    if not parts[0].is_floating_point():
        return torch.zeros_like(magnitude)
    return magnitude * (torch.finfo(parts[0].dtype).eps * len(parts))


def misfit(got: Any, want: Tensor, who: str, shape_cause: str = "") -> str | None:
    """A sentence if ``got`` is no tensor, or one of another shape or dtype than ``want``; else None.

    ``who`` begins the sentence ("Rank 1 returned"), ``shape_cause`` ends it where the shape is wrong.
    """
    if not isinstance(got, Tensor):
        hint = " Is a `return` missing, or the result of an in-place call returned?" if got is None else ""
        return f"{who} {describe(got)}; a tensor of shape {list(want.shape)} was expected.{hint}"
    if got.shape != want.shape:
        cause = f" {shape_cause}" if shape_cause else ""
        return f"{who} a tensor of shape {list(got.shape)}; shape {list(want.shape)} was expected.{cause}"
    if got.dtype != want.dtype:
        return (
            f"{who} {_article(dtype_name(got))} tensor; {dtype_name(want)} was expected, as the input is. "
            "Give buffers the dtype of the input (`torch.empty_like`)."
        )
    return None


def explain(
    expected: Sequence[Tensor],
    got: Sequence[Any],
    local: Sequence[Tensor] | None = None,
    *,
    what: str = "returned",
    numbers: Sequence[int] | None = None,
    ranks: int | None = None,
    slack: Sequence[Tensor | float] | None = None,
    reduction: str | None = None,
    digits: bool = False,
    same: bool = False,
    blocks: int = 0,
    accumulation: int = 1,
    staggered: bool = False,
    hidden: bool = False,
    shape_cause: str = "",
    unchanged_cause: str = "",
    known_cause: str = "",
) -> str | None:
    """None if every rank's tensor is right, else what is wrong with it and the likeliest cause.

    Args:
        expected: the right tensor of each rank, in shape and dtype too.
        got: what each rank has.
        local: what each rank put in; lets the causes "nothing was exchanged" and "rank 1 is missing" be seen.
        what: the verb of the sentence: "returned", "holds".
        numbers: the ranks that the lists stand for; by default 0, 1, …
        ranks: the world size; by default the length of the lists.
        slack: by rank, the elementwise error that is still right (see :func:`summation_slack`); 0 by default.
        reduction: "sum" or "mean" if the right result is one over the ranks.
        digits: rank r put in 10**r everywhere, so a sum's digits tell whose part is in it.
        same: the ranks must agree bit by bit.
        blocks: the tensor is made of so many equal blocks, one from each rank.
        accumulation: number of micro-batches whose gradients add up.
        staggered: the ranks arrived at different times in this case.
        hidden: no values in the sentence.
        shape_cause: added where the shape is wrong.
        unchanged_cause: said, in place of the usual, where each rank has what it put in.
        known_cause: said in place of any guess, where the caller knows more than the tensors tell.
    """
    numbers = range(len(expected)) if numbers is None else numbers
    for number, want, have in zip(numbers, expected, got, strict=True):
        problem = misfit(have, want, f"Rank {number} {what}", shape_cause)
        if problem:
            return problem
    slack = [0.0] * len(expected) if slack is None else slack
    case = Wrong(
        want=expected,
        got=got,
        local=local,
        numbers=numbers,
        ranks=ranks or len(expected),
        slack=slack,
        reduction=reduction,
        digits=digits,
        blocks=blocks,
        accumulation=accumulation,
        staggered=staggered,
        unchanged_cause=unchanged_cause,
    )
    case.wrong = [place for place in range(len(got)) if not close(got[place], expected[place], slack[place])]
    if not case.wrong:
        return _differ_in_bits(got, numbers) if same else None
    cause = known_cause or next((sentence for look in FINGERPRINTS if (sentence := look(case))), "")
    return f"{_first_difference(case, what, hidden)} {cause}".strip()


def _differ_in_bits(got: Sequence[Tensor], numbers: Sequence[int]) -> str | None:
    for number, have in zip(numbers, got, strict=True):
        if not torch.equal(have, got[0]):
            return (
                f"Ranks {numbers[0]} and {number} agree only up to rounding; they must hold the very "
                "same bits. "
                "Let one rank finish each piece and hand it on unchanged."
            )
    return None


def _numbers(have: float, want: float) -> tuple[str, str]:
    """Both numbers with as many digits as it takes to tell them apart."""
    for places in (6, 10, 17):
        shown = tuple(_number(value, places) for value in (have, want))
        if shown[0] != shown[1]:
            break
    return shown


def _number(value: float, places: int) -> str:
    whole = isinstance(value, int) or (value.is_integer() and abs(value) < 1e15)
    return str(int(value)) if whole else f"{value:.{places}g}"


def _first_difference(case: Wrong, what: str, hidden: bool) -> str:
    place = case.wrong[0]
    who = f"Rank {case.numbers[place]}"
    if hidden:
        return f"{who} {what} wrong values."
    flat = case.agreement(place).index(False)
    shape, index = case.want[place].shape, []
    rest = flat
    for size in reversed(shape):
        index.insert(0, rest % size)
        rest //= size
    at = f" at index {index}" if shape else ""
    have, want = (tensor.reshape(-1)[flat].item() for tensor in (case.got[place], case.want[place]))
    shown, right = _numbers(have, want)
    return f"{who} {what} {shown}{at}; {right} was expected."
