"""When each call was made, and when it was complete; and how long messages take over their size."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.patches import Patch
from matplotlib.ticker import FixedLocator, FuncFormatter, LogLocator, NullLocator
from matplotlib.transforms import ScaledTranslation

from rankzero.draw.style import CARD, COLOURS, FAINT, INK, KINDS, Picture, card, size_words, time_words
from rankzero.observe.observation import Mark, Message, Observation

#: Marks of up to so many names stay apart.
_SIGNS = ("v", "D", "o", "s", "^", "P")
#: Where what sends and what receives lie in their lane, side by side, since they overlap in time: shift and height.
_SIDES = {"send": (-0.2, 0.36), "recv": (0.2, 0.36)}


def timeline(seen: Observation, since: str | None = None) -> Picture:
    """One lane per rank; a bar per call, from when it was made to when the rank knew that it was complete.

    A call that is made while another one is still open lies below it. Marks stand above the bars.

    Args:
        since: leave out what was before the first mark of this name.
    """
    start = min((mark.seconds for mark in seen.marks if mark.name == since), default=0.0)
    messages = [message for message in seen.messages if message.issued_seconds >= start]
    marks = [mark for mark in seen.marks if mark.seconds >= start]
    moments = [message.issued_seconds for message in messages] + [mark.seconds for mark in marks]
    began = min(moments, default=0.0)
    ended = max([*map(_end, messages), *(mark.seconds for mark in marks)], default=began)
    span = max(ended - began, 1e-6)
    room = 0.72 if marks else 0.52
    figure, axes = card(7.2, room * seen.ranks + 1.55, "calls of each rank over time")
    for message, shift, height in _placed(messages, top=-0.22 if marks else -0.35):
        _draw_call(axes, message, shift, height, began, ended)
    names = list(dict.fromkeys(mark.name for mark in marks))
    for number, name in enumerate(names):
        there = [mark for mark in marks if mark.name == name]
        axes.plot(
            [1e3 * (mark.seconds - began) for mark in there],
            [mark.rank - 0.33 for mark in there],
            _SIGNS[number % len(_SIGNS)],
            color=INK,
            markersize=5,
            markeredgecolor=CARD,
            markeredgewidth=0.4,
            clip_on=False,
            label=name,
        )
    axes.set_ylim(seen.ranks - 0.45, -0.55)
    axes.set_yticks(range(seen.ranks), [f"rank {rank}" for rank in range(seen.ranks)])
    axes.set_xlim(0, 1e3 * span * 1.02)
    axes.set_xlabel(f"milliseconds since {since or 'the first call'}", color=INK, fontsize=10)
    axes.grid(axis="x", color="#e4e4e0", linewidth=0.8)
    axes.set_axisbelow(True)
    _legend(figure, axes, sorted({message.kind for message in messages}))
    told = [_told(rank, [one for one in messages if one.rank == rank], marks) for rank in range(seen.ranks)]
    return Picture(figure, "Timeline: " + ("; ".join(filter(None, told)) or "no calls were made") + ".")


def _placed(messages: list[Message], top: float) -> Iterator[tuple[Message, float, float]]:
    """Each call with the shift and the height of its bar. Collectives that are open at once lie one below the other."""
    rows: dict[int, list[float]] = {}  # by rank: when the last bar of each row ends
    row_of = {}
    for message in sorted(messages, key=lambda one: one.issued_seconds):
        if message.kind not in _SIDES:
            ends = rows.setdefault(message.rank, [])
            row = next((row for row, end in enumerate(ends) if end <= message.issued_seconds), len(ends))
            ends[row : row + 1] = [float("inf") if message.done_seconds is None else message.done_seconds]
            row_of[message.rank, message.index] = row
    for message in messages:
        if message.kind in _SIDES:
            yield message, *_SIDES[message.kind]
        else:
            height = (0.35 - top) / len(rows[message.rank])
            row = row_of[message.rank, message.index]
            yield message, top + (row + 0.5) * height, height


def _draw_call(axes: Axes, message: Message, shift: float, height: float, began: float, ended: float) -> None:
    colour, hatch = KINDS[message.kind]
    span = max(ended - began, 1e-6)
    left = 1e3 * (message.issued_seconds - began)
    width = max(1e3 * (_end(message) - message.issued_seconds), 1e3 * span * 0.004)
    if message.done_seconds is None:
        width = 1e3 * (ended - message.issued_seconds) or 1e3 * span * 0.02
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


def _legend(figure: Figure, axes: Axes, kinds: list[str]) -> None:
    """In a row of its own, 42 points below the lanes, where it meets neither title nor labels."""
    handles = [Patch(facecolor=KINDS[kind][0], hatch=KINDS[kind][1], edgecolor="white", label=kind) for kind in kinds]
    handles += axes.get_legend_handles_labels()[0]
    if not handles:
        return
    below = axes.transAxes + ScaledTranslation(0, -42 / 72, figure.dpi_scale_trans)
    axes.legend(
        handles=handles,
        loc="upper left",
        bbox_to_anchor=(0.0, 0.0),
        bbox_transform=below,
        borderpad=0,
        borderaxespad=0,
        ncols=min(len(handles), 6),
        frameon=False,
        fontsize=9,
        labelcolor=INK,
    )


def _told(rank: int, messages: list[Message], marks: list[Mark]) -> str:
    """What a rank did, in words; of its marks also how many came after its first call."""
    parts = []
    if messages:
        parts.append(f"made {' and '.join(_counts(messages))} in {time_words(_busy(messages))}")
    mine = [mark for mark in marks if mark.rank == rank]
    for name in dict.fromkeys(mark.name for mark in mine):
        there = [mark for mark in mine if mark.name == name]
        later = sum(mark.seconds > messages[0].issued_seconds for mark in there) if messages else 0
        parts.append(
            f"marked {len(there)} × {name}" + (f" ({later or 'none'} after its first call)" if messages else "")
        )
    return f"rank {rank} {', '.join(parts)}" if parts else ""


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
