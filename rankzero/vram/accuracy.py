"""How far estimates are off from measurements: the statistics of a table of rows."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import asdict, dataclass

from rankzero.vram.rows import Prediction

#: A run that was said to need 10 % less than it does may well not fit.
UNDER = -0.10


@dataclass(frozen=True)
class Accuracy:
    """Errors over a set of rows. Errors are relative; the signed one is below 0 where estimates are too small.

    Attributes:
        rows: how many were predicted.
        mean: mean absolute error.
        median: median absolute error.
        p90: 90th percentile of the absolute error (the smallest error that 90 % of the rows do not exceed).
        worst: the largest absolute error, with its sign.
        signed: mean signed error.
        under: share of rows whose estimate is more than 10 % too small.
    """

    rows: int
    mean: float
    median: float
    p90: float
    worst: float
    signed: float
    under: float

    def json(self) -> dict[str, float]:
        """Plain data."""
        return asdict(self)


def accuracy(predictions: Sequence[Prediction]) -> Accuracy | None:
    """The statistics of those predictions that have an estimate; None if there is none."""
    errors = [prediction.error for prediction in predictions if prediction.estimate is not None]
    if not errors:
        return None
    sizes = sorted(map(abs, errors))
    count = len(errors)
    return Accuracy(
        rows=count,
        mean=sum(sizes) / count,
        median=(sizes[(count - 1) // 2] + sizes[count // 2]) / 2,
        p90=sizes[math.ceil(0.9 * count) - 1],
        worst=max(errors, key=abs),
        signed=sum(errors) / count,
        under=sum(error < UNDER for error in errors) / count,
    )


def groups(predictions: Sequence[Prediction]) -> dict[str, list[Prediction]]:
    """The rows by kind of measurement; low confidence and variable length apart, since neither can be scored."""
    found: dict[str, list[Prediction]] = {}
    for prediction in predictions:
        if prediction.estimate is None:
            continue
        name = prediction.kind
        if prediction.row.get("confidence") == "low":
            name += ", low confidence"
        elif prediction.variable_length:
            name += ", variable length"
        found.setdefault(name, []).append(prediction)
    order = ["allocated", "reserved", "smi"]
    return dict(sorted(found.items(), key=lambda item: (order.index(item[0].split(",")[0]), item[0])))
