"""Bars of bytes: what each rank holds, part by part, and what was measured beside what theory says."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from matplotlib.axes import Axes
from matplotlib.patches import Patch
from matplotlib.ticker import FuncFormatter, MaxNLocator

from rankzero.draw.style import COLOURS, INK, Picture, card, size_words

#: In the order of a stack's parts, from the bottom; colour is never alone.
_HATCHES = ("", "///", "...", "\\\\\\", "xxx", "---", "+++", "|||")
_UNITS = tuple(2**power for power in (0, 10, 20, 30))


def memory_by_rank(
    held: Mapping[str, Sequence[Mapping[str, float]]], title: str = "bytes that each rank holds"
) -> Picture:
    """A group of stacked bars for each way to train, a bar for each rank, a layer for each part.

    Args:
        held: by name of the way, by rank: bytes of each part, in the same order everywhere.
    """
    parts = list(dict.fromkeys(part for ranks in held.values() for one in ranks for part in one))
    ranks = max((len(by_rank) for by_rank in held.values()), default=1)
    figure, axes = card(max(5.2, 0.36 * len(held) * (ranks + 1) + 1.6), 4.2, title)
    tallest = max((sum(one.values()) for by_rank in held.values() for one in by_rank), default=0)
    told = []
    for group, (name, by_rank) in enumerate(held.items()):
        left = group * (ranks + 1.2)
        for rank, one in enumerate(by_rank):
            bottom = 0.0
            for number, part in enumerate(parts):
                height = one.get(part, 0)
                _bar(axes, left + rank, height, bottom, number)
                bottom += height
        fullest = max(by_rank, key=lambda one: sum(one.values()))
        total = sum(fullest.values())
        axes.text(
            left + (len(by_rank) - 1) / 2,
            total + 0.02 * tallest,
            size_words(total),
            ha="center",
            va="bottom",
            fontsize=9,
            color=INK,
        )
        listed = ", ".join(f"{part} {size_words(fullest.get(part, 0))}" for part in parts)
        told.append(f"{name}: {size_words(total)} on the fullest of {len(by_rank)} ranks ({listed})")
    centres = [group * (ranks + 1.2) + (len(by_rank) - 1) / 2 for group, by_rank in enumerate(held.values())]
    axes.set_xticks(centres, list(held))
    _bytes_on(axes, tallest)
    _legend(axes, parts)
    return Picture(figure, "Memory. " + "; ".join(told) + ".")


def measured_and_theory(
    names: Sequence[str], measured_bytes: Sequence[float], theory_bytes: Sequence[float], title: str
) -> Picture:
    """Two bars for each name: what was measured, and what theory says."""
    figure, axes = card(max(4.8, 1.25 * len(names) + 1.4), 3.8, title)
    tallest = max((*measured_bytes, *theory_bytes), default=0)
    for place, pair in enumerate(zip(measured_bytes, theory_bytes, strict=True)):
        for number, height in enumerate(pair):
            _bar(axes, 2.6 * place + number, height, 0.0, number)
            words = size_words(height).replace(" ", "\n")
            axes.text(2.6 * place + number, height + 0.015 * tallest, words, ha="center", fontsize=8, color=INK)
    axes.set_xticks([2.6 * place + 0.5 for place in range(len(names))], list(names))
    _bytes_on(axes, tallest)
    _legend(axes, ["measured", "theory"])
    told = [
        f"{name}: {size_words(got)} measured, {size_words(want)} in theory"
        for name, got, want in zip(names, measured_bytes, theory_bytes, strict=True)
    ]
    return Picture(figure, f"{title[:1].upper()}{title[1:]}. " + "; ".join(told) + ".")


def _bar(axes: Axes, x: float, height: float, bottom: float, number: int) -> None:
    colour, hatch = COLOURS[number % len(COLOURS)], _HATCHES[number % len(_HATCHES)]
    axes.bar(x, height, 0.86, bottom, color=colour, hatch=hatch, edgecolor="white", linewidth=0.6)


def _bytes_on(axes: Axes, tallest: float) -> None:
    """Marks at round numbers of the unit that fits."""
    unit = max((one for one in _UNITS if one <= tallest), default=1)
    axes.set_ylim(0, 1.16 * tallest or 1)
    marks = [unit * mark for mark in MaxNLocator(5).tick_values(0, tallest / unit) if mark * unit <= 1.16 * tallest]
    axes.set_yticks(marks)
    axes.yaxis.set_major_formatter(FuncFormatter(lambda value, _: size_words(value)))
    axes.grid(axis="y", color="#e4e4e0", linewidth=0.8)
    axes.set_axisbelow(True)


def _legend(axes: Axes, labels: Sequence[str]) -> None:
    handles = [
        Patch(
            facecolor=COLOURS[number % len(COLOURS)],
            hatch=_HATCHES[number % len(_HATCHES)],
            edgecolor="white",
            label=label,
        )
        for number, label in enumerate(labels)
    ]
    axes.figure.legend(handles=handles, loc="outside lower left", ncols=4, frameon=False, fontsize=9, labelcolor=INK)
