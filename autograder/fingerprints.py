"""Fingerprints of wrong tensors: patterns that tell a usual mistake, each with a sentence for the learner."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

import torch
from torch import Tensor

from rankzero.ranks.hang import rank_words


def close(got: Tensor, want: Tensor, slack: Tensor | float = 0.0) -> bool:
    """Whether two tensors of one shape agree within ``slack``, elementwise; nan agrees with nothing."""
    return got.shape == want.shape and bool(agrees(got, want, slack).all())


def agrees(got: Tensor, want: Tensor, slack: Tensor | float) -> Tensor:
    """Where two tensors of one shape agree within ``slack``."""
    if not (got.is_floating_point() or want.is_floating_point() or (isinstance(slack, Tensor) and slack.any())):
        return got == want
    return (got.double() - want.double()).abs() <= slack


@dataclass
class Wrong:
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
    unchanged_cause: str
    wrong: list[int] = field(default_factory=list)

    def everywhere(self, other: Callable[[int], Tensor], factor: float = 1.0) -> bool:
        """Whether every rank's tensor is ``other`` of its place, times ``factor``."""
        return all(
            close(have, other(place).double() * factor, slack * max(1.0, factor))
            for place, (have, slack) in enumerate(zip(self.got, self.slack, strict=True))
        )

    def agreement(self, place: int) -> list[bool]:
        return agrees(self.got[place], self.want[place], self.slack[place]).reshape(-1).tolist()


# The fingerprints, from the most telling to the most general. Each returns its sentence or None.


def _garbage(case: Wrong) -> str | None:
    for place in case.wrong:
        values = case.got[place].double()
        if not torch.isfinite(values).all() or values.abs().max() > 1e20:
            return (
                "That looks like memory that was never written: is a `torch.empty` left unfilled, or "
                "a `wait()` missing?"
            )
    return None


def _scaled(case: Wrong) -> str | None:
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


def _coarse(case: Wrong) -> str | None:
    """Right as far as the next narrower dtype goes."""
    dtype = case.want[0].dtype
    narrower = {torch.float64: torch.float32, torch.float32: torch.bfloat16}.get(dtype)
    if narrower is None:
        return None
    coarseness = torch.finfo(narrower).eps / torch.finfo(dtype).eps
    for place, have in enumerate(case.got):
        slack = case.slack[place] if isinstance(case.slack[place], Tensor) else torch.tensor(case.slack[place])
        # The caller's slack may itself be a wide one; then only the narrower dtype's own rounding bounds it.
        largest = case.want[place].abs().max() * torch.finfo(narrower).eps * 4 * case.ranks
        if not slack.any() or not close(have, case.want[place], (slack * coarseness).clamp(max=float(largest))):
            return None
    return f"That is right but for rounding, as if it went through {str(narrower).removeprefix('torch.')} on the way."


def _local(case: Wrong) -> str | None:
    if not _comparable(case) or case.ranks == 1:
        return None
    if all(close(case.got[place], case.local[place]) for place in case.wrong):
        if case.unchanged_cause:
            return case.unchanged_cause
        stale = " Only when the ranks arrive at different times? Then a `wait()` is missing." if case.staggered else ""
        if case.reduction is None:
            return f"That is what the rank had before: nothing reached it.{stale}"
        return f"That is the rank's own value: nothing was exchanged, or the result was thrown away.{stale}"
    return None


def _broadcast_instead(case: Wrong) -> str | None:
    if not case.reduction or not _comparable(case) or len(case.wrong) < len(case.got) or len(case.got) < 2:
        return None
    for other, theirs in enumerate(case.local):
        if all(close(have, theirs) for have in case.got):
            number = case.numbers[other]
            return f"That is what rank {number} put in, on every rank: it was broadcast where a reduction was needed."
    return None


def _someone_elses(case: Wrong) -> str | None:
    if case.ranks == 1:
        return None
    if not case.reduction and _comparable(case):
        for other, theirs in enumerate(case.local):
            if all(close(case.got[place], theirs) for place in case.wrong):
                return f"That is what rank {case.numbers[other]} put in."
    shift = {_owner(case, place) for place in case.wrong}
    if len(shift) == 1 and None not in shift:
        return (
            f"Rank {case.numbers[case.wrong[0]]} has what rank "
            f"{(case.wrong[0] + shift.pop()) % case.ranks} should have, "
            "and so on around the ring: start one step earlier or later, so that the right piece ends here."
        )
    return None


def _owner(case: Wrong, place: int) -> int | None:
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


def _comparable(case: Wrong) -> bool:
    return case.local is not None and all(
        case.local[place].shape == case.got[place].shape and case.got[place].numel() for place in case.wrong
    )


def _tail(case: Wrong) -> str | None:
    length = case.want[0].numel()
    rest = length % case.ranks
    if not rest or length < case.ranks or not case.reduction:
        return None
    for place in case.wrong:
        agreement = case.agreement(place)
        if len(agreement) != length or not all(agreement[:-rest]) or any(agreement[-rest:]):
            return None
    return "All is right but the tail: the length does not divide by the number of ranks, and the rest was dropped."


def _one_chunk(case: Wrong) -> str | None:
    if not case.reduction or case.ranks == 1 or len(case.wrong) < case.ranks:
        return None
    for place in case.wrong:
        agreement = case.agreement(place)
        right = agreement.count(True)
        if len(agreement) < case.ranks or not len(agreement) // case.ranks <= right <= math.ceil(
            len(agreement) / case.ranks
        ):
            return None
        start = agreement.index(True)
        if not all(agreement[start : start + right]):
            return None
    return (
        "Each rank has one finished piece, the rest is unfinished: the reduce-scatter works, the "
        "all-gather is "
        "missing or starts at the wrong piece (after the usual ring, rank r holds piece r+1)."
    )


def _doubled(case: Wrong) -> str | None:
    counts = _digits(case)
    if counts is None or max(counts) < 2:
        return None
    return f"{_found(counts)} Is something added that should be stored, or sent after it was summed already?"


def _missing(case: Wrong) -> str | None:
    counts = _digits(case)
    if counts is None or 0 not in counts:
        return None
    if counts.count(0) < case.ranks - 1:
        return f"{_found(counts)} Does a loop stop one step short, or walk the ring the wrong way?"
    return (
        f"{_found(counts)} Is a partial sum overwritten, by a store instead of an add or by an all-gather "
        "that starts at the wrong piece?"
    )


def _digits(case: Wrong) -> list[int] | None:
    """How often each rank's part is in the first wrong element, where rank r put in 10**r."""
    if not case.digits or not case.reduction:
        return None
    place = case.wrong[0]
    value = case.got[place].reshape(-1)[case.agreement(place).index(False)].item()
    if not 0 <= value < 10**case.ranks or value != int(value):
        return None
    return [int(value) // 10**rank % 10 for rank in range(case.ranks)]


def _found(counts: list[int]) -> str:
    found = []
    missing = [rank for rank, count in enumerate(counts) if count == 0]
    if missing:
        found.append(
            f"{rank_words(missing)}'s part is missing"
            if len(missing) == 1
            else f"the parts of {rank_words(missing)} are missing"
        )
    for rank, count in enumerate(counts):
        if count > 1:
            found.append(f"rank {rank} is counted {'twice' if count == 2 else f'{count} times'}")
    return f"Rank r put in 10**r, so the digits tell: {', and '.join(found)}."


def _block_order(case: Wrong) -> str | None:
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
    if None in owners and others_right:
        missing = [block for block, owner in enumerate(owners) if owner is None]
        return f"The blocks of {rank_words(missing)} are missing there: too few steps, or a `wait()` forgotten?"
    if None in owners:
        return None
    if len(set(owners)) == 1:
        return (
            f"Every block there is rank {owners[0]}'s: is it one buffer {case.blocks} times "
            "(`[buffer] * n`), "
            "or a buffer that was filled again before it was copied?"
        )
    if sorted(owners) == list(range(case.blocks)):
        return f"The blocks there come from ranks {owners}: place them by the rank they come from, not by arrival."
    return None


def _ranks_differ(case: Wrong) -> str | None:
    if case.reduction is None or len(case.got) < 2 or any(not torch.equal(case.want[0], want) for want in case.want):
        return None
    if any(not torch.equal(case.got[0], have) for have in case.got):
        return (
            "The ranks end with different results: is the last all-gather missing, or do they take "
            "different numbers of steps?"
        )
    return None


def _stale(case: Wrong) -> str | None:
    if case.staggered:
        return "In this case the ranks arrive at different times: is a `wait()` missing on an isend or irecv?"
    return None


# "Ranks differ" would shadow the tail, the chunk and the digits, so it comes after them; garbage can match
# nothing else, so it may come first.
FINGERPRINTS = (
    _garbage,
    _scaled,
    _coarse,
    _local,
    _broadcast_instead,
    _tail,
    _doubled,
    _one_chunk,
    _missing,
    _block_order,
    _someone_elses,
    _ranks_differ,
    _stale,
)
