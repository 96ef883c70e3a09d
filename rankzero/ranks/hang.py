"""Compares the ranks' calls: where they first differ, whether nobody can go on, whether all came out even."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Sequence

from rankzero.observe.log import RankLog
from rankzero.observe.observation import POINT_TO_POINT, Message
from rankzero.ranks import source

#: In these, what ranks hand in may differ in shape.
_UNEVEN = ("scatter", "gather", "all_to_all", "barrier")

#: A message whose two sides are there needs at most this long to begin to move.
_DROPPED_SECONDS = 1.5


def collectives(log: RankLog) -> dict[tuple[int, ...], list[Message]]:
    """A rank's collectives by group, in order."""
    by_group: dict[tuple[int, ...], list[Message]] = defaultdict(list)
    for message in log.messages:
        if message.kind not in POINT_TO_POINT:
            by_group[message.group].append(message)
    return by_group


def is_balanced(logs: Sequence[RankLog]) -> bool:
    """Whether every send met a receive and every collective was called by its whole group."""
    pairs: Counter = Counter()
    counts: dict[tuple, dict[int, int]] = defaultdict(dict)
    for rank, log in enumerate(logs):
        for message in log.messages:
            if message.kind == "send":
                pairs[rank, message.peer] += 1
            elif message.kind == "recv":
                if message.peer is None:
                    return False
                pairs[message.peer, rank] -= 1
        for group, made in collectives(log).items():
            counts[group][rank] = len(made)
    return not any(pairs.values()) and all(
        {made.get(rank, 0) for rank in group} == {max(made.values())} for group, made in counts.items()
    )


def is_deadlock(states: Sequence[str], logs: Sequence[RankLog], quiet_seconds: float) -> bool:
    """Whether it is certain that nobody can go on, when nothing has happened for ``quiet_seconds``.

    It is, when every unfinished rank waits in its main thread for a message that only a rank could make
    which has finished or waits itself; and, after a longer quiet, when it waits for a message whose sender
    has dropped the handle. Sound, not complete: threads, receives from any rank and waits for unknown work
    are never called a deadlock.
    """
    unfinished = [rank for rank, state in enumerate(states) if state == "unfinished"]
    if not unfinished or any(log.threads for log in logs):
        return False
    for rank in unfinished:
        log = logs[rank]
        if not log.in_wait or not log.waiting:
            return False
        open_calls = [message for message in log.waiting if message.done_seconds is None]
        if any(_never_met(message, rank, logs) for message in open_calls):
            continue
        if quiet_seconds > _DROPPED_SECONDS and any(dropped_send(message, logs) for message in open_calls):
            continue
        return False
    return True


def dropped_send(message: Message, logs: Sequence[RankLog]) -> Message | None:
    """The send that a recv waits for, if its rank has begun it and waits for something else, or for nothing.

    gloo cancels a send whose handle is dropped: the receiver then waits for ever for a message that was sent.
    """
    if message.kind != "recv" or message.peer is None:
        return None
    sender = logs[message.peer]
    for sent in sender.messages:
        if sent.kind == "send" and sent.peer == message.rank and sent.seq == message.seq:
            return sent if sent.done_seconds is None and sent not in sender.waiting else None
    return None


def _never_met(message: Message, rank: int, logs: Sequence[RankLog]) -> bool:
    """Whether a partner that the message needs has not made its part of it (and, being stuck, never will)."""
    if message.kind in POINT_TO_POINT:
        if message.peer is None:
            return False
        return _count(logs[message.peer], "recv" if message.kind == "send" else "send", rank) <= message.seq
    for member in message.group:
        made = collectives(logs[member])[message.group]
        if len(made) <= message.seq or _signature(made[message.seq]) != _signature(message):
            return True
    return False


def _count(log: RankLog, kind: str, peer: int) -> int:
    return sum(message.kind == kind and message.peer == peer for message in log.messages)


def first_difference(logs: Sequence[RankLog]) -> str:
    """The first point at which the ranks' calls do not fit together, in words; empty if they do."""
    return _collective_difference(logs) or _send_recv_difference(logs)


def _collective_difference(logs: Sequence[RankLog]) -> str:
    by_rank = [collectives(log) for log in logs]
    groups = sorted({group for made in by_rank for group in made}, key=lambda group: (-len(group), group))
    for group in groups:
        longest = max(len(by_rank[rank][group]) for rank in group)
        for number in range(longest):
            calls = {
                rank: by_rank[rank][group][number] if number < len(by_rank[rank][group]) else None for rank in group
            }
            if len({_signature(call) for call in calls.values()}) > 1:
                return _tell_difference(number, group, len(logs), calls)
    return ""


def _signature(call: Message | None) -> tuple:
    if call is None:
        return ()
    shape = () if call.kind in _UNEVEN else (call.shape, call.dtype)
    return (call.kind, call.peer, call.reduce_op, *shape)


def _tell_difference(number: int, group: tuple[int, ...], ranks: int, calls: dict[int, Message | None]) -> str:
    same: dict[tuple, list[int]] = defaultdict(list)
    for rank, call in calls.items():
        same[_signature(call)].append(rank)
    parts = []
    for members in sorted(same.values(), key=lambda members: calls[members[0]] is None):
        call = calls[members[0]]
        verb = "makes" if len(members) == 1 else "make"
        if call is None:
            parts.append(f"{rank_words(members)} {verb} no such call")
        else:
            place = source.describe(call.where)
            parts.append(
                f"{rank_words(members)} {verb.replace('make', 'call')} {call}" + (f" ({place})" if place else "")
            )
    of_group = "" if len(group) == ranks else f" of the group of {rank_words(list(group))}"
    return f"First difference, at collective {number + 1}{of_group}: " + "; ".join(parts) + "."


def _send_recv_difference(logs: Sequence[RankLog]) -> str:
    """The earliest send or recv that found no partner."""
    loose = []
    for rank, log in enumerate(logs):
        for message in log.messages:
            if message.kind in POINT_TO_POINT and message.peer is not None and _never_met(message, rank, logs):
                loose.append(message)
    if not loose:
        return _mismatched_pair(logs)
    first = min(loose, key=lambda message: (message.index, message.rank))
    partner = "recv" if first.kind == "send" else "send"
    made = _count(logs[first.peer], partner, first.rank)
    preposition = "from" if partner == "recv" else "to"
    place = source.describe(first.where)
    counted = "no" if made == 0 else f"only {made}"
    return (
        f"First message without a partner: rank {first.rank} calls {first}"
        + (f" ({place})" if place else "")
        + f"; that is its {partner_number(first.seq)} {first.kind} to that rank, "
        f"and rank {first.peer} has called {counted} {partner} {preposition} rank {first.rank}."
    ).replace("recv to that rank", "recv from that rank")


def _mismatched_pair(logs: Sequence[RankLog]) -> str:
    for rank, log in enumerate(logs):
        for sent in (message for message in log.messages if message.kind == "send"):
            received = [m for m in logs[sent.peer].messages if m.kind == "recv" and m.peer == rank]
            if sent.seq < len(received) and received[sent.seq].bytes != sent.bytes:
                other = received[sent.seq]
                return (
                    "A send and its recv differ in size: "
                    f"rank {rank} sends {sent.dtype}{list(sent.shape)} ({sent.bytes:,} bytes), "
                    f"rank {sent.peer} receives {other.dtype}{list(other.shape)} ({other.bytes:,} bytes)."
                )
    return ""


def partner_number(seq: int) -> str:
    """``0`` → "1st", ``1`` → "2nd" …"""
    number = seq + 1
    suffix = "th" if 10 <= number % 100 <= 20 else {1: "st", 2: "nd", 3: "rd"}.get(number % 10, "th")
    return f"{number}{suffix}"


def rank_words(ranks: Sequence[int]) -> str:
    """``[0]`` → "rank 0", ``[1, 2, 3]`` → "ranks 1, 2 and 3"."""
    if len(ranks) == 1:
        return f"rank {ranks[0]}"
    return "ranks " + ", ".join(map(str, ranks[:-1])) + f" and {ranks[-1]}"
