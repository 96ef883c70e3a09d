"""Reads the lines that a rank's recorder wrote: its messages, and where it is now."""

from __future__ import annotations

import json
from dataclasses import dataclass, field, replace

from rankzero.observe.observation import Frame, Mark, Message


@dataclass
class RankLog:
    """What one rank wrote during one call.

    Attributes:
        messages: its calls in order.
        marks: what it noted about itself, in order.
        waiting: the messages whose ``wait`` it has entered and not left; empty if it waits for nothing.
        where: the learner's line of that wait.
        in_wait: whether it is inside a wait at all.
        threads: whether any call came from another thread than the main one.
        stack: the frames of its main thread, innermost first, from the last dump of its stack.
    """

    messages: list[Message] = field(default_factory=list)
    marks: list[Mark] = field(default_factory=list)
    waiting: list[Message] = field(default_factory=list)
    where: Frame | None = None
    in_wait: bool = False
    threads: bool = False
    stack: list[Frame] = field(default_factory=list)


def read(rank: int, text: str) -> RankLog:
    """Read a rank's lines. A last line that was cut short, or one that is no event, is passed over."""
    log = RankLog()
    waits: list[tuple[list[int], Frame | None]] = []
    stacks: list[list[Frame]] = []
    for line in text.splitlines():
        if line.startswith(("Thread ", "Current thread ", "Fatal Python", "Stack ")):
            stacks.append([])
        elif line.startswith("  File "):
            if stacks:
                stacks[-1].append(_stack_frame(line))
        elif line.startswith("{"):
            try:
                _event(log, waits, rank, json.loads(line))
            except (ValueError, KeyError, TypeError, IndexError):
                continue
    if waits:
        log.in_wait = True
        log.waiting = [log.messages[index] for index in waits[-1][0] if index < len(log.messages)]
        log.where = waits[-1][1] or next((message.where for message in log.waiting), None)
    log.stack = next((frames for frames in reversed(stacks) if _is_main(frames)), [])
    return log


def _event(log: RankLog, waits: list, rank: int, event: dict) -> None:
    where = Frame(*event["where"]) if event.get("where") else None
    if event["e"] == "call":
        log.threads |= not event["main"]
        log.messages.append(
            Message(
                rank=rank,
                index=len(log.messages),
                kind=event["kind"],
                group=tuple(event["group"]),
                peer=event["peer"],
                bytes=event["bytes"],
                sent_bytes=event["sent"],
                shape=tuple(event["shape"]),
                dtype=event["dtype"],
                issued_seconds=event["t"],
                where=where,
                seq=event["seq"],
                reduce_op=event.get("reduce"),
            )
        )
    elif event["e"] == "mark":
        log.marks.append(Mark(rank, event["name"], event["t"], event["calls"]))
    elif event["e"] == "wait":
        waits.append((event["i"], where))
    elif event["e"] == "done":
        if waits and waits[-1][0] == event["i"]:
            waits.pop()
        for index in event["i"]:
            log.messages[index] = replace(log.messages[index], done_seconds=event["t"])


def _stack_frame(line: str) -> Frame:
    file, _, rest = line.removeprefix('  File "').partition('", line ')
    number, _, function = rest.partition(" in ")
    return Frame(file, int(number) if number.isdigit() else 0, function)


def _is_main(frames: list[Frame]) -> bool:
    return any(frame.function == "serve_calls" for frame in frames)
