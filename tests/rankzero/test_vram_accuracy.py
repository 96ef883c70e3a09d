"""The estimates hold against the kept table of published measurements."""

from pathlib import Path

import pytest

from rankzero.vram.accuracy import accuracy
from rankzero.vram.rows import predict, read_rows

TABLE = Path(__file__).resolve().parents[2] / "benchmarks/data/measured_vram.csv"
#: benchmarks/vram.py says why.
UNEXPLAINED = {"209"}


@pytest.fixture(scope="module")
def predictions():
    return [predict(row) for row in read_rows(TABLE)]


def scored(predictions, *kinds):
    return [
        each
        for each in predictions
        if each.estimate and each.kind in kinds and each.row["confidence"] != "low" and not each.variable_length
    ]


def test_every_row_is_predicted_or_says_why_not(predictions):
    assert len(predictions) == 288
    assert {each.row["id"] for each in predictions if each.reason} == {"377", *map(str, range(388, 396))}


def test_live_tensors_are_within_a_few_per_cent(predictions):
    figures = accuracy(scored(predictions, "allocated"))
    assert figures.rows == 214
    assert figures.mean <= 0.02
    assert figures.p90 <= 0.04


def test_the_largest_set_is_within_one_per_cent(predictions):
    rows = [each for each in scored(predictions, "allocated") if each.row["source"] == "fms-acceleration"]
    assert accuracy(rows).mean <= 0.01


def test_no_row_is_far_off_without_a_reason(predictions):
    far = {each.row["id"] for each in scored(predictions, "allocated") if abs(each.error) > 0.30}
    assert far == UNEXPLAINED


@pytest.mark.parametrize("kind", ["reserved", "smi"])
def test_what_the_allocator_and_the_card_show_is_within_a_tenth(predictions, kind):
    assert accuracy(scored(predictions, kind)).mean <= 0.10


def test_hardly_any_estimate_is_far_too_small(predictions):
    assert accuracy(scored(predictions, "allocated", "reserved", "smi")).under < 0.02
