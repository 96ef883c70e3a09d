"""What the benchmarks share: medians, one table, a line per bar, and the exit status."""

from __future__ import annotations

import statistics
import sys
from collections.abc import Sequence


def median(values: Sequence[float]) -> float:
    """The median; not a number where nothing could be measured."""
    return statistics.median(values) if values else float("nan")


def table(head: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """An aligned text table."""
    widths = [max(len(row[column]) for row in [head, *rows]) for column in range(len(head))]
    return "\n".join(
        "  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip() for row in [head, *rows]
    )


def bar(name: str, figure: float, limit: float, at_least: bool) -> bool:
    """Print one bar: figure, bar, met or missed. Return whether it was met; not a number is missed."""
    met = figure >= limit if at_least else figure <= limit
    side = "at least" if at_least else "at most"
    print(f"bar: {name}: {figure:.3g} (bar: {side} {limit:g}) {'met' if met else 'MISSED'}")
    return met


def finish(met: Sequence[bool]) -> None:
    """End with status 1 if a bar was missed."""
    sys.exit(0 if all(met) else 1)
