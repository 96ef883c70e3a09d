"""When each call was made, and when it was complete; and how long messages take over their size."""

from __future__ import annotations

from collections.abc import Sequence

from matplotlib.patches import Patch
from matplotlib.ticker import FixedLocator, FuncFormatter, LogLocator, NullLocator
from matplotlib.transforms import ScaledTranslation

from rankzero.draw.style import CARD, COLOURS, FAINT, INK, KINDS, Picture, card, size_words, time_words
from rankzero.observe.observation import Message, Observation


def timeline(seen: Observation) -> Picture:
    """One lane per rank; a bar per call, from when it was made to when the rank knew that it was complete."""
    messages = seen.messages
    began = min((message.issued_seconds for message in messages), default=0.0)
    ended = max((_end(message) for message in messages), default=began) or began
    span = max(ended - began, 1e-6)
    figure, axes = card(7.2, 0.52 * seen.ranks + 1.55, "calls of each rank over time")
    for message in messages:
        colour, hatch = KINDS[message.kind]
        left = 1e3 * (message.issued_seconds - began)
        width = max(1e3 * (_end(message) - message.issued_seconds), 1e3 * span * 0.004)
        if message.done_seconds is None:
            width = 1e3 * (ended - message.issued_seconds) or 1e3 * span * 0.02
        # What sends and what receives lie side by side in the lane, since they overlap in time.
        height, shift = (0.36, -0.2) if message.kind == "send" else (0.36, 0.2) if message.kind == "recv" else (0.7, 0)
        axes.barh(
            message.rank + shift,
            width,
            left=left,
            height=height,
            color=colour,
            hatch=hatch,
            edgecolor="white",
            linewidth=0.6,
        )
        if message.done_seconds is None:
            axes.text(
                left + width,
                message.rank + shift,
                "never complete ",
                ha="right",
                va="center",
                fontsize=8,
                color=INK,
                bbox={"facecolor": CARD, "edgecolor": "none", "pad": 1.5},
            )
    axes.set_ylim(seen.ranks - 0.45, -0.55)
    axes.set_yticks(range(seen.ranks), [f"rank {rank}" for rank in range(seen.ranks)])
    axes.set_xlim(0, 1e3 * span * 1.02)
    axes.set_xlabel("milliseconds since the first call", color=INK, fontsize=10)
    axes.grid(axis="x", color="#e4e4e0", linewidth=0.8)
    axes.set_axisbelow(True)
    kinds = sorted({message.kind for message in messages})
    if kinds:
        handles = [
            Patch(facecolor=KINDS[kind][0], hatch=KINDS[kind][1], edgecolor="white", label=kind) for kind in kinds
        ]
        # In a row of its own, 42 points below the lanes, where it meets neither title nor labels.
        below = axes.transAxes + ScaledTranslation(0, -42 / 72, figure.dpi_scale_trans)
        axes.legend(
            handles=handles,
            loc="upper left",
            bbox_to_anchor=(0.0, 0.0),
            bbox_transform=below,
            borderpad=0,
            borderaxespad=0,
            ncols=min(len(kinds), 6),
            frameon=False,
            fontsize=9,
            labelcolor=INK,
        )
    counted = [
        f"rank {rank} made {' and '.join(_counts(seen.of_rank(rank)))} in {time_words(_busy(seen.of_rank(rank)))}"
        for rank in range(seen.ranks)
        if seen.of_rank(rank)
    ]
    return Picture(figure, "Timeline: " + ("; ".join(counted) or "no calls were made") + ".")


def predicted_against_measured(
    sizes_bytes: Sequence[float], measured_seconds: Sequence[float], predicted_seconds: Sequence[float]
) -> Picture:
    """Measured times as points and predicted ones as a line, over the size, both axes logarithmic."""
    figure, axes = card(6.4, 4.0, "seconds over size")
    axes.set_xscale("log", base=2)
    axes.set_yscale("log")
    order = sorted(range(len(sizes_bytes)), key=lambda place: sizes_bytes[place])
    sizes = [sizes_bytes[place] for place in order]
    measured = [measured_seconds[place] for place in order]
    predicted = [predicted_seconds[place] for place in order]
    axes.plot(sizes, predicted, color=COLOURS[1], linewidth=2, label="predicted")
    axes.plot(sizes, measured, "o", color=COLOURS[0], markersize=6, label="measured")
    axes.xaxis.set_major_locator(FixedLocator(sizes[:: max(1, len(sizes) // 6)]))
    axes.xaxis.set_minor_locator(NullLocator())
    axes.xaxis.set_major_formatter(FuncFormatter(lambda value, _: size_words(value)))
    axes.yaxis.set_major_locator(LogLocator(subs=(1, 3)))
    axes.yaxis.set_major_formatter(FuncFormatter(lambda value, _: time_words(value)))
    axes.yaxis.set_minor_locator(NullLocator())
    axes.grid(color="#e4e4e0", linewidth=0.8)
    axes.set_xlabel("size of the message", color=INK, fontsize=10)
    axes.legend(frameon=False, fontsize=10, labelcolor=INK)
    axes.spines["bottom"].set_visible(True)
    axes.spines["bottom"].set_color(FAINT)
    pairs = [
        f"{size_words(size)}: {time_words(took)} measured, {time_words(said)} predicted"
        for size, took, said in zip(sizes, measured, predicted, strict=True)
    ]
    return Picture(figure, "Measured against predicted time. " + "; ".join(pairs) + ".")


def _end(message: Message) -> float:
    return message.issued_seconds if message.done_seconds is None else message.done_seconds


def _busy(messages: list[Message]) -> float:
    return max(map(_end, messages)) - min(message.issued_seconds for message in messages)


def _counts(messages: list[Message]) -> list[str]:
    kinds = [message.kind for message in messages]
    return [f"{kinds.count(kind)} × {kind}" for kind in sorted(set(kinds))]
