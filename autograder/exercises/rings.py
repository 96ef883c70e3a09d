"""Exercises on the ring: all-gather, reduce-scatter, and all-reduce from both."""

from __future__ import annotations

import math
import random

import torch
from torch import Tensor

from autograder import compare
from autograder.exercise import Case, Exercise, Judgement
from autograder.exercises.by_hand import (
    Drawer,
    calls_of,
    collective_case,
    digits,
    drive_all_gather,
    drive_reduce_scatter,
    drive_ring,
    exact_sum,
    hints,
    input_changed,
    only_returned,
)
from autograder.exercises.common import library_call, not_neighbours, share, too_many_bytes
from rankzero.observe.observation import Observation

LESSON = "04_collectives"

# -- all_gather_ring --------------------------------------------------------------------------------------

STACKED = "all tensors, stacked by rank"
GATHER_BYTES = "(n−1) · size bytes sent per rank"
NEIGHBOURS = "only neighbours talk"


def all_gather_cases(rng: random.Random) -> list[Case]:
    draw = Drawer(rng)
    judged = (STACKED, GATHER_BYTES, NEIGHBOURS)
    return [
        collective_case("4 ranks, rank r holds 10**r", digits(4, 3, dtype=torch.int64), judged),
        collective_case("4 ranks, 5 elements", draw.tensors(4, 5), judged),
        collective_case(
            "3 ranks, 2 × 3, float64, called twice",
            draw.tensors(3, 2, 3, dtype=torch.float64, calls=2),
            judged,
        ),
        collective_case("4 ranks, some late", draw.tensors(4, 13, calls=2), judged, late="last"),
        collective_case("2 ranks", draw.tensors(2, 4), judged),
        collective_case("1 rank", draw.tensors(1, 3), judged),
        collective_case(
            "5 ranks, some late, called twice", draw.tensors(5, 4, calls=2), judged, late="first", hidden=True
        ),
        collective_case(
            "4 ranks, bfloat16, one element", draw.tensors(4, 1, dtype=torch.bfloat16), judged, hidden=True
        ),
        collective_case("3 ranks, a single number each", draw.tensors(3), judged, hidden=True),
        collective_case("3 ranks, some late, three dims", draw.tensors(3, 2, 1, 3), judged, late="last", hidden=True),
        collective_case("2 ranks, float16", draw.tensors(2, 3, dtype=torch.float16), judged, hidden=True),
    ]


def _stacked(case: Case, seen: Observation) -> str | None:
    if problem := library_call(seen, "all_gather"):
        return problem
    for call, local in calls_of(case):
        got = [result[call]["returned"] for result in seen.results]
        if problem := compare.explain(
            [torch.stack(local)] * case.ranks,
            got,
            blocks=case.ranks,
            shape_cause="The tensors are stacked along a new first dim, one for each rank (`torch.stack`).",
            **hints(case, seen),
        ):
            return problem
    return input_changed(case, seen, "all_gather")


def _gather_bytes(case: Case, seen: Observation) -> str | None:
    size = sum(local[0].nbytes for _, local in calls_of(case))
    most = (case.ranks - 1) * size
    return too_many_bytes(seen, most, "(n−1) · size", case.ranks * most, case.hidden)


def _neighbours(case: Case, seen: Observation) -> str | None:
    return not_neighbours(seen)


ALL_GATHER = Exercise(
    id="all_gather_ring",
    lesson=LESSON,
    names=("all_gather",),
    judgements=(
        Judgement(STACKED, 1, _stacked),
        Judgement(GATHER_BYTES, 1, _gather_bytes, how=True),
        Judgement(NEIGHBOURS, 1, _neighbours, how=True),
    ),
    cases=all_gather_cases,
    drive=drive_all_gather,
)

# -- reduce_scatter_ring ----------------------------------------------------------------------------------

PIECE = "each rank gets its piece of the sum, the input stays"
UNEVEN = "lengths that do not divide"
SCATTER_BYTES = "(n−1)/n of the bytes, to neighbours only"


def reduce_scatter_cases(rng: random.Random) -> list[Case]:
    draw = Drawer(rng)
    even, uneven = (PIECE, SCATTER_BYTES), (UNEVEN, SCATTER_BYTES)
    return [
        collective_case("4 ranks, 8 elements, rank r holds 10**r", digits(4, 8), even),
        collective_case("3 ranks, 12 elements", draw.tensors(3, 12), even),
        collective_case(
            "4 ranks, 4 × 4, float64, some late",
            draw.tensors(4, 4, 4, dtype=torch.float64, calls=2),
            even,
            late="last",
        ),
        collective_case("2 ranks, 6 elements", draw.tensors(2, 6), even),
        collective_case("4 ranks, 9 elements, rank r holds 10**r", digits(4, 9, dtype=torch.int64), uneven),
        collective_case("3 ranks, 13 elements, called twice", draw.tensors(3, 13, calls=2), uneven),
        collective_case("4 ranks, 2 elements", draw.tensors(4, 2), uneven),
        collective_case("1 rank", draw.tensors(1, 3), even),
        collective_case(
            "5 ranks, some late, called twice", draw.tensors(5, 10, calls=2), even, late="first", hidden=True
        ),
        collective_case("4 ranks, bfloat16", draw.tensors(4, 8, dtype=torch.bfloat16), even, hidden=True),
        collective_case(
            "5 ranks, a length that does not divide",
            draw.tensors(5, 17, dtype=torch.float64),
            uneven,
            hidden=True,
        ),
        collective_case(
            "3 ranks, two dims that do not divide", draw.tensors(3, 2, 4), uneven, late="last", hidden=True
        ),
        collective_case("4 ranks, one element", draw.tensors(4, 1), uneven, hidden=True),
    ]


def _piece(case: Case, seen: Observation) -> str | None:
    if problem := library_call(seen, "reduce_scatter"):
        return problem
    for call, local in calls_of(case):
        pieces = [share(local[0].numel(), rank, case.ranks) for rank in range(case.ranks)]
        cut = [slice(piece.start, piece.stop) for piece in pieces]
        total, slack = exact_sum(local).reshape(-1), compare.summation_slack(local).reshape(-1)
        got = [result[call]["returned"] for result in seen.results]
        if problem := compare.explain(
            [total[mine] for mine in cut],
            got,
            [mine.reshape(-1)[part] for mine, part in zip(local, cut, strict=True)],
            slack=[slack[mine] for mine in cut],
            reduction="sum",
            shape_cause=(
                "Rank r returns, flat, the piece `my_share(numel, r, n)`: sizes differ by at most "
                "one, larger first, "
                "no padding (`torch.tensor_split` cuts so; `torch.chunk` does not)."
            ),
            unchanged_cause=(
                "That is the rank's own value, nothing was added to it. Is another piece the finished one? "
                "After the usual ring rank r holds piece r+1."
            ),
            **hints(case, seen),
        ):
            return problem
    return input_changed(case, seen, "reduce_scatter")


def _ring_bytes(case: Case, seen: Observation, loops: int, formula: str) -> str | None:
    """At most ``loops`` · (n−1) pieces of ⌈numel / n⌉ elements from each rank, to its neighbours."""
    n, most, least = case.ranks, 0, 0
    for _, local in calls_of(case):
        steps = loops * (n - 1)
        most += steps * math.ceil(local[0].numel() / n) * local[0].element_size()
        least += steps * local[0].nbytes
    return too_many_bytes(seen, most, formula, least, case.hidden) or not_neighbours(seen)


def _scatter_bytes(case: Case, seen: Observation) -> str | None:
    return _ring_bytes(case, seen, 1, "(n−1) · ⌈numel/n⌉ elements")


REDUCE_SCATTER = Exercise(
    id="reduce_scatter_ring",
    lesson=LESSON,
    names=("reduce_scatter",),
    judgements=(
        Judgement(PIECE, 1, _piece),
        Judgement(UNEVEN, 1, _piece),
        Judgement(SCATTER_BYTES, 1, _scatter_bytes, how=True),
    ),
    cases=reduce_scatter_cases,
    drive=drive_reduce_scatter,
)

# -- ring_all_reduce --------------------------------------------------------------------------------------

RIGHT_SUM = "every rank holds the sum"
ANY_TENSOR = "any size, dtype and layout"
RING_BYTES = "2(n−1)/n of the bytes, to neighbours only"
OVERLAP = "large tensors do not lock up"


def ring_cases(rng: random.Random) -> list[Case]:
    draw = Drawer(rng)
    sums, any_tensor, large = (RIGHT_SUM, RING_BYTES), (ANY_TENSOR, RING_BYTES), (OVERLAP, RING_BYTES)
    f16, bf16, f64 = torch.float16, torch.bfloat16, torch.float64
    return [
        collective_case("4 ranks, 8 elements, rank r holds 10**r", digits(4, 8), sums),
        collective_case("3 ranks, 12 elements, called twice", draw.tensors(3, 12, calls=2), sums),
        collective_case("4 ranks, 16 elements, some late", draw.tensors(4, 16, calls=2), sums, late="last"),
        collective_case("2 ranks, 6 elements", draw.tensors(2, 6), sums),
        collective_case("4 ranks, 9 elements, rank r holds 10**r", digits(4, 9), any_tensor),
        collective_case("4 ranks, 2 elements", draw.tensors(4, 2), any_tensor),
        collective_case("4 ranks, no element", draw.tensors(4, 0), any_tensor),
        collective_case("3 ranks, 13 elements, float64", draw.tensors(3, 13, dtype=f64), any_tensor),
        collective_case("4 ranks, 3 × 5, bfloat16", draw.tensors(4, 3, 5, dtype=bf16), any_tensor),
        collective_case("3 ranks, a column of a matrix", draw.tensors(3, 7), any_tensor, layout="column"),
        collective_case("4 ranks, transposed 3 × 4", draw.tensors(4, 3, 4), any_tensor, layout="transposed"),
        collective_case("1 rank", draw.tensors(1, 5), any_tensor),
        collective_case("4 ranks, a million elements", draw.seeds(4, 2**20), large, deadline_seconds=5.0),
        collective_case(
            "5 ranks, some late, called twice", draw.tensors(5, 20, calls=2), sums, late="first", hidden=True
        ),
        collective_case("4 ranks, float64, called twice", draw.tensors(4, 12, dtype=f64, calls=2), sums, hidden=True),
        collective_case(
            "5 ranks, a length that does not divide",
            draw.tensors(5, 23),
            any_tensor,
            late="last",
            hidden=True,
        ),
        collective_case("3 ranks, one element", draw.tensors(3, 1), any_tensor, hidden=True),
        collective_case("3 ranks, a single number", draw.tensors(3), any_tensor, hidden=True),
        collective_case(
            "3 ranks, float16, a column",
            draw.tensors(3, 11, dtype=f16),
            any_tensor,
            layout="column",
            hidden=True,
        ),
        collective_case(
            "4 ranks, bfloat16, transposed",
            draw.tensors(4, 5, 3, dtype=bf16),
            any_tensor,
            layout="transposed",
            hidden=True,
        ),
        collective_case("3 ranks, no element", draw.tensors(3, 2, 0), any_tensor, hidden=True),
        collective_case("3 ranks, large", draw.seeds(3, 2**21 + 1), large, hidden=True, deadline_seconds=8.0),
    ]


def _sum_in_place(case: Case, seen: Observation) -> str | None:
    if problem := library_call(seen, "ring_all_reduce"):
        return problem
    for call, local in calls_of(case):
        want = [exact_sum(local)] * case.ranks
        slack = [compare.summation_slack(local)] * case.ranks
        if problem := only_returned(seen, call, want, local, slack):
            return problem
        got = [result[call]["tensor"] for result in seen.results]
        problem = compare.explain(
            want, got, local, what="holds", slack=slack, reduction="sum", same=True, **hints(case, seen)
        )
        if problem:
            return problem + _layout_cause(case, got, local)
    return None


def _layout_cause(case: Case, got: list[Tensor], local: list[Tensor]) -> str:
    if case.inputs[0]["layout"] == "plain" or not torch.equal(got[0], local[0]):
        return ""
    return (
        " This tensor is not contiguous, so `tensor.contiguous()` and `tensor.reshape(-1)` give a copy: "
        "write the result back with `tensor.copy_(…)`."
    )


def _all_reduce_bytes(case: Case, seen: Observation) -> str | None:
    return _ring_bytes(case, seen, 2, "2(n−1) · ⌈numel/n⌉ elements")


RING_ALL_REDUCE = Exercise(
    id="ring_all_reduce",
    lesson=LESSON,
    names=("ring_all_reduce",),
    judgements=(
        Judgement(RIGHT_SUM, 2, _sum_in_place),
        Judgement(ANY_TENSOR, 1, _sum_in_place),
        Judgement(OVERLAP, 1, _sum_in_place),
        Judgement(RING_BYTES, 1, _all_reduce_bytes, how=True),
    ),
    cases=ring_cases,
    drive=drive_ring,
)
