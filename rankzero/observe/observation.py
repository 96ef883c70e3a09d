"""What was seen of a call on several ranks: its results, every message, its memory."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, NamedTuple

#: Kinds of message that one rank sends to, or receives from, one other.
POINT_TO_POINT = ("send", "recv")


class Frame(NamedTuple):
    """A place in the learner's code."""

    file: str
    line: int
    function: str


@dataclass(frozen=True)
class Message:
    """One call into torch.distributed by one rank.

    Attributes:
        rank: the global rank that made the call.
        index: this was the rank's n-th call, from 0.
        kind: "send", "recv", "all_reduce", "all_gather", "reduce_scatter", "broadcast", "reduce", "gather",
            "scatter", "all_to_all" or "barrier".
        group: the global ranks of its process group.
        peer: the other side of a send or recv, or the root of a rooted collective, as a global rank.
        bytes: the payload that this rank handed in (the tensor to fill, for a recv).
        sent_bytes: what this rank puts on the wire by the usual algorithm (ring, or root to all); 0 for a recv.
        shape, dtype: of the first tensor, the dtype as "float32".
        issued_seconds: when the call was made, since the ranks began.
        done_seconds: when the rank knew that it was complete; None if it never did.
        where: the line of the learner's code that made the call, if there is one.
        seq: n-th collective of this group on this rank, or n-th message of its kind with this peer, from 0.
        reduce_op: "sum", "avg", …, for reductions.
    """

    rank: int
    index: int
    kind: str
    group: tuple[int, ...]
    peer: int | None
    bytes: int
    sent_bytes: int
    shape: tuple[int, ...]
    dtype: str
    issued_seconds: float
    done_seconds: float | None = None
    where: Frame | None = None
    seq: int = 0
    reduce_op: str | None = None

    def __str__(self) -> str:
        shape = ", ".join(map(str, self.shape))
        reduced = f" ({self.reduce_op})" if self.reduce_op else ""
        what = "" if self.kind == "barrier" else f" of {self.dtype}[{shape}]{reduced}"
        if self.kind == "send":
            return f"send{what} to rank {self.peer}"
        if self.kind == "recv":
            return f"recv{what} from " + ("any rank" if self.peer is None else f"rank {self.peer}")
        return f"{self.kind}{what}" + ("" if self.peer is None else f", root rank {self.peer}")


@dataclass(frozen=True)
class Mark:
    """Something that a rank noted about itself, by :func:`rankzero.mark`.

    Attributes:
        rank: the global rank.
        name: what it noted.
        seconds: when, since the ranks began.
        calls: how many calls into torch.distributed it had made by then: the index of its next message.
    """

    rank: int
    name: str
    seconds: float
    calls: int


@dataclass
class Observation:
    """A call on ``ranks`` ranks, as it was seen from outside.

    Attributes:
        ranks: the world size.
        results: what each rank returned, by rank.
        messages: every call into torch.distributed, ordered by rank, then by index.
        peak_live_bytes: by rank, the most bytes of tensors alive at once that were made during the call.
        kept_bytes: by rank, the bytes of such tensors still alive at its end.
        seconds: how long the call took, start of the ranks not counted.
        marks: what the ranks noted about themselves, ordered by rank, then by time.
    """

    ranks: int
    results: list[Any]
    messages: list[Message] = field(default_factory=list)
    peak_live_bytes: list[int] = field(default_factory=list)
    kept_bytes: list[int] = field(default_factory=list)
    seconds: float = 0.0
    marks: list[Mark] = field(default_factory=list)

    def of_rank(self, rank: int) -> list[Message]:
        """The messages of one rank, in the order in which it made them."""
        return [message for message in self.messages if message.rank == rank]

    def sent_bytes(self, rank: int) -> int:
        """The bytes that one rank put on the wire, by the usual algorithms."""
        return sum(message.sent_bytes for message in self.of_rank(rank))

    def traffic(self) -> list[list[int]]:
        """Bytes from each rank (row) to each rank (column). Collectives are counted as a ring."""
        matrix = [[0] * self.ranks for _ in range(self.ranks)]
        for message in self.messages:
            if message.kind == "send":
                matrix[message.rank][message.peer] += message.sent_bytes
            elif message.sent_bytes and len(message.group) > 1:
                place = message.group.index(message.rank)
                matrix[message.rank][message.group[(place + 1) % len(message.group)]] += message.sent_bytes
        return matrix

    def heat_map(self):
        """A picture of the traffic: who sent how many bytes to whom."""
        from rankzero.draw import heat_map

        return heat_map(self)

    def timeline(self, since: str | None = None):
        """A picture of the ranks over time: when each call was made and when it was complete, and their marks.

        Args:
            since: leave out what was before the first mark of this name.
        """
        from rankzero.draw import timeline

        return timeline(self, since)

    def steps(self):
        """A picture of the sends, round by round: which rank sent to which."""
        from rankzero.draw import steps

        return steps(self)
