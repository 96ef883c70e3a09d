"""The sentences about wrong tensors name the cause that made them."""

from __future__ import annotations

import pytest
import torch

from autograder import compare
from rankzero.ranks.wire import Opaque

RANKS = 4
LOCAL = [torch.randn(9, generator=torch.Generator().manual_seed(rank)) for rank in range(RANKS)]
TOTAL = sum(part.double() for part in LOCAL).float()
SLACK = [compare.summation_slack(LOCAL)] * RANKS
DIGITS = [torch.full((8,), 10.0**rank, dtype=torch.float64) for rank in range(RANKS)]
ALL_DIGITS = torch.full((8,), 1111.0, dtype=torch.float64)


def of_sum(got, **more):
    return compare.explain([TOTAL] * RANKS, got, LOCAL, slack=SLACK, reduction="sum", same=True, **more)


def of_mean(got):
    return compare.explain([TOTAL / RANKS] * RANKS, got, LOCAL, slack=SLACK, reduction="mean")


def of_digits(got):
    return compare.explain([ALL_DIGITS] * RANKS, got, DIGITS, reduction="sum", digits=True)


def test_right_sums_in_any_order_pass() -> None:
    assert of_sum([LOCAL[3] + LOCAL[1] + LOCAL[0] + LOCAL[2]] * RANKS) is None


def test_ranks_must_hold_the_same_bits() -> None:
    nearly = torch.nextafter(TOTAL, torch.tensor(100.0))
    assert "very same bits" in of_sum([TOTAL, nearly, TOTAL, TOTAL])


@pytest.mark.parametrize(
    ("got", "says"),
    [
        (None, "None"),
        ([1.0], "a list"),
        (3, "an int"),
        (Opaque("numpy.ndarray"), "numpy.ndarray"),
        (TOTAL[:4], "shape [4]"),
        (TOTAL.double(), "float64 tensor"),
    ],
)
def test_what_is_no_such_tensor_is_named(got, says) -> None:
    assert says in of_sum([TOTAL, got, TOTAL, TOTAL])


@pytest.mark.parametrize(
    ("got", "says"),
    [
        ([TOTAL] * RANKS, "never divided"),
        ([TOTAL / 16] * RANKS, "twice"),
        ([TOTAL / 2] * RANKS, "divided by 2"),
        (LOCAL, "nothing was exchanged"),
        ([LOCAL[0]] * RANKS, "broadcast where a reduction"),
    ],
)
def test_fingerprints_of_a_mean(got, says) -> None:
    assert says in of_mean(got)


def with_tail_of(part: torch.Tensor) -> torch.Tensor:
    return torch.cat([TOTAL[:8], part[8:]])


def with_own_chunk(rank: int) -> torch.Tensor:
    chunk = slice(2 * rank, 2 * rank + 2)
    mine = LOCAL[rank].clone()
    mine[chunk] = TOTAL[chunk]
    return mine


@pytest.mark.parametrize(
    ("got", "says"),
    [
        ([TOTAL / RANKS] * RANKS, "This is the mean"),
        ([TOTAL * RANKS] * RANKS, "summed twice"),
        ([with_tail_of(part) for part in LOCAL], "rest was dropped"),
        ([with_own_chunk(rank) for rank in range(RANKS)], "all-gather is missing"),
        ([TOTAL, TOTAL, TOTAL + 1, TOTAL], "different results"),
        ([torch.full_like(TOTAL, float("nan"))] * RANKS, "never written"),
        ([TOTAL.bfloat16().float()] * RANKS, "went through bfloat16"),
    ],
)
def test_fingerprints_of_a_sum(got, says) -> None:
    assert says in of_sum(got)


@pytest.mark.parametrize(
    ("value", "says"),
    [
        (1101, "rank 1's part is missing"),
        (1112, "rank 0 is counted twice"),
        (1000, "the parts of ranks 0, 1 and 2 are missing"),
        (1301, "rank 1's part is missing, and rank 2 is counted 3 times"),
    ],
)
def test_digits_tell_whose_part_is_in_a_sum(value, says) -> None:
    wrong = torch.full_like(ALL_DIGITS, float(value))
    assert says in of_digits([ALL_DIGITS, wrong, wrong, ALL_DIGITS])


def stacked(*owners: int) -> torch.Tensor:
    return torch.stack([LOCAL[owner] for owner in owners])


@pytest.mark.parametrize(
    ("got", "says"),
    [
        (stacked(1, 0, 3, 2), "ranks [1, 0, 3, 2]"),
        (stacked(2, 2, 2, 2), "Every block there is rank 2's"),
        (torch.stack([LOCAL[0], torch.zeros(9), LOCAL[2], LOCAL[3]]), "Only the block of rank 1"),
        (torch.stack([LOCAL[0], torch.zeros(9), torch.zeros(9), LOCAL[3]]), "blocks of ranks 1 and 2"),
    ],
)
def test_blocks_are_told_by_where_they_come_from(got, says) -> None:
    assert says in compare.explain([stacked(0, 1, 2, 3)] * RANKS, [got] * RANKS, blocks=RANKS)


def test_a_piece_of_the_next_rank_is_recognised() -> None:
    pieces = list(TOTAL.tensor_split(RANKS))
    turned = pieces[1:] + pieces[:1]
    told = compare.explain(pieces[1:], turned[1:], ranks=3, reduction="sum", slack=[1e-5] * 3, shape_cause="my_share")
    assert "my_share" in told or "should have" in told


def test_hidden_cases_show_no_values() -> None:
    wrong = TOTAL + 1
    told = of_sum([wrong] * RANKS, hidden=True)
    assert told.startswith("Rank 0 returned wrong values")
    assert not any(character.isdigit() for character in told.removeprefix("Rank 0"))
