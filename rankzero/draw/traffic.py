"""Who sent how much to whom: as a matrix, and round by round."""

from __future__ import annotations

from collections import Counter

from matplotlib.colors import LinearSegmentedColormap
from matplotlib.patches import FancyArrowPatch

from rankzero.draw.style import CARD, COLOURS, FAINT, INK, Picture, card, size_words
from rankzero.observe.observation import POINT_TO_POINT, Message, Observation

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
    if any(message.kind not in (*POINT_TO_POINT, "barrier") for message in seen.messages):
        axes.set_xlabel("collectives are counted as a ring", color=FAINT, fontsize=9)
    flows = [
        f"rank {row} sent {size_words(traffic[row][column])} to rank {column}"
        for row in range(n)
        for column in range(n)
        if traffic[row][column]
    ]
    return Picture(figure, f"Traffic between {n} ranks: " + ("; ".join(flows) or "nobody sent anything") + ".")


def steps(seen: Observation) -> Picture:
    """The sends, round by round: a send's round is one after all that its rank sent or received before it."""
    rounds = _rounds(seen)
    shown = rounds[:_MAX_ROUNDS]
    n = seen.ranks
    straight = all((one.peer - one.rank) % n in (1, n - 1) for sends in shown for one in sends)
    row, column = 0.6 if n > 2 and straight else 0.9, 1.15
    figure, axes = card(max(4.2, column * n + 1.6), row * max(1, len(shown)) + 1.3, "sends, round by round")
    for number, sends in enumerate(shown):
        _draw_round(axes, number, sends, n, row / column)
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
    axes.set_yticks(range(len(shown)), [f"round {number + 1}" for number in range(len(shown))])
    told = [
        f"round {number + 1}: "
        + ", ".join(f"{message.rank} to {message.peer} ({size_words(message.bytes)})" for message in sends)
        for number, sends in enumerate(shown)
    ]
    return Picture(figure, f"Sends between {n} ranks in {len(rounds)} rounds. " + "; ".join(told) + ".")


def _rounds(seen: Observation) -> list[list[Message]]:
    """The sends by round. All ranks read one clock, so whatever a send depends on was issued before it."""
    sends = sorted((one for one in seen.messages if one.kind == "send"), key=lambda one: one.issued_seconds)
    numbered = Counter()  # messages seen so far, by (from, to)
    heard: list[list[tuple[float, tuple]]] = [[] for _ in range(seen.ranks)]  # what each rank received, and when
    for recv in (one for one in seen.messages if one.kind == "recv"):
        pair = (recv.peer, recv.rank)
        if recv.done_seconds is not None:
            heard[recv.rank].append((recv.done_seconds, (*pair, numbered[pair])))
        numbered[pair] += 1
    numbered.clear()
    latest = [0] * seen.ranks  # the round of each rank's last send
    round_of: dict[tuple, int] = {}
    by_round: list[list[Message]] = []
    for send in sends:
        before = [round_of.get(key, 0) for done, key in heard[send.rank] if done <= send.issued_seconds]
        number = latest[send.rank] = 1 + max([latest[send.rank], *before])
        pair = (send.rank, send.peer)
        round_of[(*pair, numbered[pair])] = number
        numbered[pair] += 1
        by_round += [[] for _ in range(number - len(by_round))]
        by_round[number - 1].append(send)
    return [sorted(sent, key=lambda one: one.rank) for sent in by_round]


def _draw_round(axes, number: int, sends: list[Message], n: int, aspect: float) -> None:
    """One row. ``aspect``: the height of a row over the width of a column."""
    is_ring = n > 2 and len(sends) > 1 and all((one.peer - one.rank) % n in (1, n - 1) for one in sends)
    far = [one for one in sends if n == 2 or (not is_ring and abs(one.peer - one.rank) > 1)]
    for send in sends:
        source, target = send.rank, send.peer
        colour = COLOURS[source] if source < len(COLOURS) and source != 6 else FAINT
        if is_ring and abs(source - target) == n - 1:
            # It leaves the picture on one side and comes back on the other.
            out = 0.55 if source > target else -0.55
            _line(axes, (source, number), (source + out, number), colour, head=False)
            _line(axes, (target - out, number), (target, number), colour, head=True)
            _label(axes, source + out / 2, number, send)
        elif send in far:
            rise = (0.2 if n == 2 else 0.16 + 0.42 * far.index(send) / len(far)) * (1 if source < target else -1)
            _line(
                axes, (source, number), (target, number), colour, head=True, bend=-2 * rise * aspect / (target - source)
            )
            _label(axes, (source + target) / 2, number - rise, send, below=rise < 0)
        else:
            _line(axes, (source, number), (target, number), colour, head=True)
            _label(axes, (source + target) / 2, number, send, below=source > target and not is_ring)


def _label(axes, x: float, y: float, send: Message, below: bool = False) -> None:
    """The size of a message, beside its arrow."""
    axes.text(
        x,
        y + (0.09 if below else -0.09),
        size_words(send.bytes),
        ha="center",
        va="top" if below else "bottom",
        fontsize=8,
        color=INK,
        bbox={"facecolor": CARD, "edgecolor": "none", "pad": 0.6},
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
