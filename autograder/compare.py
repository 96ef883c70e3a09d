"""Turns a wrong tensor into the likeliest cause, in a sentence or two for the learner."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor

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


def join_ranks(ranks: Sequence[int]) -> str:
    """ "rank 1" or "ranks 0, 2 and 3"."""
    names = [str(rank) for rank in ranks]
    if len(names) == 1:
        return f"rank {names[0]}"
    return f"ranks {', '.join(names[:-1])} and {names[-1]}"


def summation_slack(parts: Sequence[Tensor]) -> Tensor:
    """The error, elementwise in float64, that summing ``parts`` in any order in their dtype may make.

    Each of the additions rounds once, by at most half an epsilon of the partial sum; casting the exact sum
    for the comparison rounds once more. Integers are exact.
    """
    magnitude = sum(part.abs().double() for part in parts)
    if not parts[0].is_floating_point():
        return torch.zeros_like(magnitude)
    return magnitude * (torch.finfo(parts[0].dtype).eps * len(parts))


def close(got: Tensor, want: Tensor, slack: Tensor | float = 0.0) -> bool:
    """Whether two tensors of one shape agree within ``slack``, elementwise; nan agrees with nothing."""
    return got.shape == want.shape and bool(_agrees(got, want, slack).all())


def _agrees(got: Tensor, want: Tensor, slack: Tensor | float) -> Tensor:
    return (got.double() - want.double()).abs() <= slack


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


@dataclass
class _Wrong:
    """A comparison that failed, as the fingerprints look at it."""

    want: Sequence[Tensor]
    got: Sequence[Tensor]
    local: Sequence[Tensor] | None
    numbers: Sequence[int]
    ranks: int
    slack: Sequence[Tensor | float]
    reduction: str | None
    digits: bool
    blocks: int
    accumulation: int
    staggered: bool
    wrong: list[int] = field(default_factory=list)

    def everywhere(self, other: Callable[[int], Tensor], factor: float = 1.0) -> bool:
        """Whether every rank's tensor is ``other`` of its place, times ``factor``."""
        return all(
            close(have, other(place).double() * factor, slack * max(1.0, factor))
            for place, (have, slack) in enumerate(zip(self.got, self.slack))
        )

    def agreement(self, place: int) -> list[bool]:
        return _agrees(self.got[place], self.want[place], self.slack[place]).reshape(-1).tolist()


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
    """
    numbers = range(len(expected)) if numbers is None else numbers
    for number, want, have in zip(numbers, expected, got):
        problem = misfit(have, want, f"Rank {number} {what}", shape_cause)
        if problem:
            return problem
    slack = [0.0] * len(expected) if slack is None else slack
    case = _Wrong(
        expected, got, local, numbers, ranks or len(expected), slack, reduction, digits, blocks, accumulation, staggered
    )
    case.wrong = [place for place in range(len(got)) if not close(got[place], expected[place], slack[place])]
    if not case.wrong:
        return _differ_in_bits(got, numbers) if same else None
    cause = next((sentence for look in _FINGERPRINTS if (sentence := look(case))), "")
    return f"{_first_difference(case, what, hidden)} {cause}".strip()


def _differ_in_bits(got: Sequence[Tensor], numbers: Sequence[int]) -> str | None:
    for number, have in zip(numbers, got):
        if not torch.equal(have, got[0]):
            return (
                f"Ranks {numbers[0]} and {number} agree only up to rounding; they must hold the very same bits. "
                "Let one rank finish each piece and hand it on unchanged."
            )
    return None


def _number(value: float | int) -> str:
    if isinstance(value, float) and value.is_integer() and abs(value) < 1e15:
        value = int(value)
    return str(value) if isinstance(value, int) else f"{value:.6g}"


def _first_difference(case: _Wrong, what: str, hidden: bool) -> str:
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
    return f"{who} {what} {_number(have)}{at}; {_number(want)} was expected."


# The fingerprints, from the most telling to the most general. Each returns its sentence or None.


def _garbage(case: _Wrong) -> str | None:
    for place in case.wrong:
        values = case.got[place].double()
        if not torch.isfinite(values).all() or values.abs().max() > 1e20:
            return "That looks like memory that was never written: is a `torch.empty` left unfilled, or a `wait()` missing?"
    return None


def _scaled(case: _Wrong) -> str | None:
    n, acc = case.ranks, case.accumulation
    if case.reduction == "mean":
        causes = [
            (n, "This is the sum over the ranks: it was never divided by the world size."),
            (1 / n, "This was divided by the world size twice (an average and one more division?)."),
        ]
    elif case.reduction == "sum":
        causes = [
            (n, f"Everything is counted {n} times: was it summed twice?"),
            (1 / n, "This is the mean; the sum was asked for."),
        ]
    else:
        return None
    causes += [
        (acc, "The loss of a micro-batch was not divided by the number of accumulation steps."),
        (1 / acc, "It was divided by the number of accumulation steps twice."),
    ]
    if case.reduction == "mean":
        causes.append((n / 2, "This was divided by 2, not by the world size."))
    for factor, cause in causes:
        if factor != 1 and case.everywhere(lambda place: case.want[place], factor):
            return cause
    return None


def _local(case: _Wrong) -> str | None:
    if not _comparable(case) or case.ranks == 1:
        return None
    if all(close(case.got[place], case.local[place]) for place in case.wrong):
        stale = " Only when the ranks arrive at different times? Then a `wait()` is missing." if case.staggered else ""
        if case.reduction is None:
            return f"That is what the rank had before: nothing reached it.{stale}"
        return f"That is the rank's own value: nothing was exchanged, or the result was thrown away.{stale}"
    return None


def _broadcast_instead(case: _Wrong) -> str | None:
    if not case.reduction or not _comparable(case) or len(case.wrong) < len(case.got) or len(case.got) < 2:
        return None
    for other, theirs in enumerate(case.local):
        if all(close(have, theirs) for have in case.got):
            number = case.numbers[other]
            return f"That is what rank {number} put in, on every rank: it was broadcast where a reduction was needed."
    return None


def _someone_elses(case: _Wrong) -> str | None:
    if case.ranks == 1:
        return None
    if not case.reduction and _comparable(case):
        for other, theirs in enumerate(case.local):
            if all(place != other and close(case.got[place], theirs) for place in case.wrong):
                return f"That is what rank {case.numbers[other]} put in."
    shift = {_owner(case, place) for place in case.wrong}
    if len(shift) == 1 and None not in shift:
        return (
            f"Rank {case.numbers[case.wrong[0]]} has what rank {(case.wrong[0] + shift.pop()) % case.ranks} should have, "
            "and so on around the ring: start one step earlier or later, so that the right piece ends here."
        )
    return None


def _owner(case: _Wrong, place: int) -> int | None:
    """How many ranks further the rank is whose right tensor this rank has."""
    if len(case.want) != case.ranks:
        return None
    for step in range(1, case.ranks):
        other = (place + step) % case.ranks
        have, want = case.got[place].reshape(-1), case.want[other].reshape(-1)
        # Pieces may differ in length by one; what both have in common decides.
        common = min(have.numel(), want.numel())
        slack = case.slack[other]
        slack = slack.reshape(-1)[:common] if isinstance(slack, Tensor) else slack
        if common and close(have[:common], want[:common], slack):
            return step
    return None


def _comparable(case: _Wrong) -> bool:
    return case.local is not None and all(
        case.local[place].shape == case.got[place].shape and case.got[place].numel() for place in case.wrong
    )


def _tail(case: _Wrong) -> str | None:
    length = case.want[0].numel()
    rest = length % case.ranks
    if not rest or length < case.ranks or not case.reduction:
        return None
    for place in case.wrong:
        agreement = case.agreement(place)
        if len(agreement) != length or not all(agreement[:-rest]) or any(agreement[-rest:]):
            return None
    return "All is right but the tail: the length does not divide by the number of ranks, and the rest was dropped."


def _one_chunk(case: _Wrong) -> str | None:
    if not case.reduction or case.ranks == 1 or len(case.wrong) < case.ranks:
        return None
    for place in case.wrong:
        agreement = case.agreement(place)
        right = agreement.count(True)
        if len(agreement) < case.ranks or not len(agreement) // case.ranks <= right <= math.ceil(len(agreement) / case.ranks):
            return None
        start = agreement.index(True)
        if not all(agreement[start : start + right]):
            return None
    return (
        "Each rank has one finished piece, the rest is unfinished: the reduce-scatter works, the all-gather is "
        "missing or starts at the wrong piece (after the usual ring, rank r holds piece r+1)."
    )


def _digits(case: _Wrong) -> str | None:
    if not case.digits or not case.reduction:
        return None
    for place in case.wrong:
        values = case.got[place].reshape(-1).tolist()
        for value, right in zip(values, case.agreement(place)):
            if right:
                continue
            if value != int(value) or not 0 <= value < 10**case.ranks:
                return None
            return _read_digits(int(value), case.ranks)
    return None


def _read_digits(value: int, ranks: int) -> str:
    counts = [value // 10**rank % 10 for rank in range(ranks)]
    missing = [rank for rank, count in enumerate(counts) if count == 0]
    doubled = [(rank, count) for rank, count in enumerate(counts) if count > 1]
    found = []
    if missing:
        found.append(f"the part of {join_ranks(missing)} is missing")
    for rank, count in doubled:
        found.append(f"rank {rank} is counted {'twice' if count == 2 else f'{count} times'}")
    cause = ""
    if missing and not doubled and len(missing) < ranks - 1:
        cause = " Does a loop stop one step short, or walk the ring the wrong way?"
    elif missing and not doubled:
        cause = " Are received values stored over the partial sum, not added to it?"
    elif doubled:
        cause = " Is something added that should be stored, or sent after it was summed already?"
    return f"Rank r put in 10**r, so the digits tell: {', and '.join(found)}.{cause}"


def _block_order(case: _Wrong) -> str | None:
    if case.blocks < 2:
        return None
    place = case.wrong[0]
    want, have = (tensor.reshape(case.blocks, -1) for tensor in (case.want[place], case.got[place]))
    if not want.numel():
        return None
    owners = [next((k for k in range(case.blocks) if close(have[j], want[k])), None) for j in range(case.blocks)]
    others_right = all(owner == j for j, owner in enumerate(owners) if owner is not None)
    if owners.count(None) == 1 and others_right:
        return f"Only the block of rank {owners.index(None)} is missing there."
    if None in owners:
        return None
    if len(set(owners)) == 1:
        return (
            f"Every block there is rank {owners[0]}'s: is it one buffer {case.blocks} times (`[buffer] * n`), "
            "or a buffer that was filled again before it was copied?"
        )
    if sorted(owners) == list(range(case.blocks)):
        return f"The blocks there come from ranks {owners}: place them by the rank they come from, not by arrival."
    return None


def _ranks_differ(case: _Wrong) -> str | None:
    if case.reduction is None or len(case.got) < 2 or any(not torch.equal(case.want[0], want) for want in case.want):
        return None
    if any(not torch.equal(case.got[0], have) for have in case.got):
        return "The ranks end with different results: is the last all-gather missing, or do they take different numbers of steps?"
    return None


def _stale(case: _Wrong) -> str | None:
    if case.staggered:
        return "In this case the ranks arrive at different times: is a `wait()` missing on an isend or irecv?"
    return None


# "Ranks differ" would shadow the tail, the chunk and the digits, so it comes after them; garbage can match
# nothing else, so it may come first.
_FINGERPRINTS = (
    _garbage,
    _scaled,
    _local,
    _broadcast_instead,
    _tail,
    _one_chunk,
    _digits,
    _block_order,
    _someone_elses,
    _ranks_differ,
    _stale,
)
