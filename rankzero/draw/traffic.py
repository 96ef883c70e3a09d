"""Who sent how much to whom: as a matrix, and round by round."""

from __future__ import annotations

from matplotlib.colors import LinearSegmentedColormap
from matplotlib.patches import FancyArrowPatch

from rankzero.draw.style import CARD, COLOURS, FAINT, INK, Picture, card, size_words
from rankzero.observe.observation import Message, Observation

_SHADES = LinearSegmentedColormap.from_list("traffic", [CARD, COLOURS[4], COLOURS[0]])
_MAX_ROUNDS = 12


def heat_map(seen: Observation) -> Picture:
    """The bytes from each rank (row) to each rank (column). Collectives are counted as a ring."""
    traffic, n = seen.traffic(), seen.ranks
    largest = max(map(max, traffic)) or 1
    side = max(2.6, 0.68 * n) + 1.2
    figure, axes = card(side + 0.5, side, "bytes from row to column")
    axes.imshow([[value / largest for value in row] for row in traffic], cmap=_SHADES, vmin=0, vmax=1)
    for row in range(n):
        for column in range(n):
            value = traffic[row][column]
            words = size_words(value).replace(" ", "\n") if value else "·"
            colour = "white" if value > 0.6 * largest else INK if value else FAINT
            axes.text(column, row, words, ha="center", va="center", color=colour, fontsize=10 if n <= 6 else 8)
    axes.set_xticks(range(n), [f"to {rank}" for rank in range(n)])
    axes.set_yticks(range(n), [f"from {rank}" for rank in range(n)])
    axes.xaxis.tick_top()
    if any(message.kind not in ("send", "recv", "barrier") for message in seen.messages):
        axes.set_xlabel("collectives are counted as a ring", color=FAINT, fontsize=9)
    flows = [
        f"rank {row} sent {size_words(traffic[row][column])} to rank {column}"
        for row in range(n)
        for column in range(n)
        if traffic[row][column]
    ]
    return Picture(figure, f"Traffic between {n} ranks: " + ("; ".join(flows) or "nobody sent anything") + ".")


def steps(seen: Observation) -> Picture:
    """The sends, round by round: round k holds each rank's k-th send."""
    rounds = _rounds(seen)
    shown = rounds[:_MAX_ROUNDS]
    n = seen.ranks
    figure, axes = card(max(4.2, 1.15 * n + 1.6), 0.6 * max(1, len(shown)) + 1.3, "sends, round by round")
    for number, sends in enumerate(shown):
        for message in sends:
            _arrow(axes, number, message, n)
    if not rounds:
        axes.text((n - 1) / 2, 0.5, "no rank has sent anything", ha="center", color=FAINT, fontsize=11)
    if len(rounds) > len(shown):
        more = f"… {len(rounds) - len(shown)} more rounds"
        axes.text((n - 1) / 2, len(shown) - 0.45, more, ha="center", va="center", color=FAINT, fontsize=10)
    for rank in range(n):
        axes.axvline(rank, color="#dddddd", linewidth=1, zorder=0)
    axes.set_xlim(-0.75, n - 0.25)
    axes.set_ylim(max(1, len(shown)) - 0.3, -0.6)
    axes.set_xticks(range(n), [f"rank {rank}" for rank in range(n)])
    axes.xaxis.tick_top()
    axes.set_yticks(range(len(shown)), [f"{number + 1}" for number in range(len(shown))])
    told = [
        f"round {number + 1}: "
        + ", ".join(f"{message.rank} to {message.peer} ({size_words(message.bytes)})" for message in sends)
        for number, sends in enumerate(shown)
    ]
    return Picture(figure, f"Sends between {n} ranks in {len(rounds)} rounds. " + "; ".join(told) + ".")


def _rounds(seen: Observation) -> list[list[Message]]:
    by_rank = [[message for message in seen.of_rank(rank) if message.kind == "send"] for rank in range(seen.ranks)]
    return [
        [sends[number] for sends in by_rank if number < len(sends)]
        for number in range(max(map(len, by_rank), default=0))
    ]


def _arrow(axes, number: int, message: Message, n: int) -> None:
    """One send; one that wraps around the ring leaves the picture on one side and comes back on the other."""
    source, target = message.rank, message.peer
    colour = COLOURS[source % len(COLOURS)] if source % len(COLOURS) != 6 else FAINT
    wraps = n > 2 and abs(source - target) == n - 1
    label_at, bend = 0.0, 0.0
    if wraps:
        step = 0.55 if source > target else -0.55
        _line(axes, (source, number), (source + step, number), colour, head=False)
        _line(axes, (target - step, number), (target, number), colour, head=True)
        label_at = source + step / 2
    else:
        bend = 0.0 if abs(source - target) == 1 and n > 2 else -0.2
        _line(axes, (source, number), (target, number), colour, head=True, bend=bend)
        label_at = (source + target) / 2
    below = not wraps and target < source
    axes.text(
        label_at,
        number + (0.13 + 0.9 * abs(bend)) * (1 if below else -1),
        size_words(message.bytes),
        ha="center",
        va="top" if below else "bottom",
        fontsize=8,
        color=INK,
    )


def _line(axes, start, end, colour, head: bool, bend: float = 0.0) -> None:
    style = "-|>,head_length=5,head_width=2.6" if head else "-"
    axes.add_patch(
        FancyArrowPatch(
            start,
            end,
            arrowstyle=style,
            connectionstyle=f"arc3,rad={bend}",
            color=colour,
            linewidth=1.8,
            shrinkA=3,
            shrinkB=3,
            mutation_scale=1,
        )
    )
