"""The report on a call that did not come back whole: a row per rank, the difference, the likeliest cause."""

from __future__ import annotations

from dataclasses import dataclass
from html import escape

from rankzero.observe.observation import POINT_TO_POINT, Frame, Message
from rankzero.ranks import hang, source
from rankzero.ranks.outcome import Outcome, RankEnd

#: Of a long traceback this many of the learner's frames are shown at each end.
_SHOWN_FRAMES = 4


@dataclass(frozen=True)
class Row:
    """One rank: its state ("finished", "raised", "exited", "waits", "runs"), its call, its line."""

    rank: int
    state: str
    call: str
    where: Frame | None

    def words(self) -> str:
        return self.state + (
            f" in {self.call}" if self.call and self.state == "waits" else f" {self.call}" if self.call else ""
        )


@dataclass(frozen=True)
class Report:
    """What every rank was doing when the owner stopped waiting.

    Attributes:
        headline: why it stopped.
        rows: a row per rank.
        difference: the first point at which the ranks' calls do not fit together; may be empty.
        cause: the likeliest cause, and what to do; may be empty.
        culprit: the rank that failed by itself, if one did.
        failure: what happened to that rank, with the learner's own lines only.
    """

    headline: str
    rows: list[Row]
    difference: str
    cause: str
    culprit: RankEnd | None
    failure: str

    @classmethod
    def of(cls, outcome: Outcome) -> Report:
        """The report on an outcome."""
        rows = [_row(end, log) for end, log in zip(outcome.ends, outcome.logs, strict=True)]
        difference = hang.first_difference(outcome.logs)
        culprit = _culprit(outcome.ends)
        if culprit is None:
            return cls(_headline(outcome), rows, difference, _cause(outcome, rows), None, "")
        return cls(_headline(outcome), rows, difference, "", culprit, _failure(culprit, outcome, difference))

    def table(self) -> str:
        """The rows as aligned text."""
        words = [row.words() for row in self.rows]
        width = min(max(map(len, words)), 60)
        return "\n".join(
            f"rank {row.rank}  {text:<{width}}  {source.describe(row.where)}".rstrip()
            for row, text in zip(self.rows, words, strict=True)
        )

    def __str__(self) -> str:
        return "\n".join(part for part in (self.headline, self.table(), self.difference, self.cause) if part)

    def _repr_html_(self) -> str:
        cells = "".join(
            f"<tr><td>rank {row.rank}</td><td>{escape(row.words())}</td>"
            f"<td><code>{escape(source.describe(row.where))}</code></td></tr>"
            for row in self.rows
        )
        tail = "".join(f"<p>{escape(part)}</p>" for part in (self.difference, self.cause) if part)
        head = "<tr><th>rank</th><th>state</th><th>line</th></tr>"
        return f"<p><b>{escape(self.headline)}</b></p><table>{head}{cells}</table>{tail}"


def _row(end: RankEnd, log) -> Row:
    if end.state == "raised":
        return Row(end.rank, "raised", end.kind, end.frames[-1] if end.frames else None)
    if end.state == "exited":
        last = log.messages[-1] if log.messages else None
        return Row(end.rank, "exited", f"(status {end.exit_code})", last.where if last else None)
    if end.state != "unfinished":
        return Row(end.rank, end.state, "", None)
    stacked = next((frame for frame in log.stack if source.is_learners(frame.file)), None)
    if log.in_wait:
        open_calls = [message for message in log.waiting if message.done_seconds is None]
        return Row(end.rank, "waits", _calls(open_calls) or "a wait", stacked or log.where)
    last = log.messages[-1] if log.messages else None
    if last is not None and last.done_seconds is None and log.stack and "torch" in log.stack[0].file:
        return Row(end.rank, "waits", str(last), stacked or last.where)
    return Row(end.rank, "runs", "Python code", stacked)


def _calls(messages: list[Message]) -> str:
    return " and ".join(map(str, messages[:2])) + (f" and {len(messages) - 2} more" if len(messages) > 2 else "")


def _headline(outcome: Outcome) -> str:
    missing = [end.rank for end in outcome.ends if end.state == "unfinished"]
    who = hang.rank_words(missing) if missing else ""
    if outcome.stopped == "deadlock":
        return f"Deadlock: {who} can never go on (seen after {outcome.seconds:.1f} s)."
    if outcome.stopped == "deadline":
        return f"Time is up: after {outcome.timeout:g} s {who} {'has' if len(missing) == 1 else 'have'} not come back."
    if outcome.stopped == "interrupt":
        return "Interrupted. This is where the ranks were:"
    return "A rank failed."


def _culprit(ends: list[RankEnd]) -> RankEnd | None:
    """The rank that failed first by itself: connections that broke because another one left are consequences."""
    failed = [end for end in ends if end.failed]
    own = [
        end
        for end in failed
        if not (end.kind == "RuntimeError" and "onnection" in end.message and "peer" in end.message)
    ]
    exited = [end for end in own if end.state == "exited"]
    return next(iter(exited or own or failed), None)


def _failure(culprit: RankEnd, outcome: Outcome, difference: str) -> str:
    """What happened to the rank that failed."""
    same = all((end.kind, end.message) == (culprit.kind, culprit.message) for end in outcome.ends)
    who = f"rank {culprit.rank}" if len(outcome.ends) > 1 else "your code"
    if culprit.state == "exited":
        talked = bool(outcome.logs[culprit.rank].messages)
        return f"{who} {culprit.exit_words(talked)}" + (f"\n{difference}" if difference else "")
    if same and len(outcome.ends) > 1:
        who = "every rank"
    if culprit.kind == "SystemExit":
        headline = f"{who} called sys.exit({culprit.message}); a function that runs on ranks should return instead"
    else:
        headline = f"{who} raised {culprit.kind}" + (f": {culprit.message}" if culprit.message else "")
    lines = [_frame_line(frame) for frame in culprit.frames]
    if len(lines) > 2 * _SHOWN_FRAMES:
        lines[_SHOWN_FRAMES:-_SHOWN_FRAMES] = [f"  … {len(lines) - 2 * _SHOWN_FRAMES} more …"]
    return "\n".join([headline, *lines])


def _frame_line(frame: Frame) -> str:
    inside = f"   (in {frame.function})" if frame.function != "<module>" else ""
    return f"  {source.describe(frame)}{inside}"


def _cause(outcome: Outcome, rows: list[Row]) -> str:
    waiting = {end.rank: outcome.logs[end.rank].waiting for end in outcome.ends if end.state == "unfinished"}
    kinds = {message.kind for messages in waiting.values() for message in messages if message.done_seconds is None}
    if kinds == {"send"} and len(waiting) > 1:
        return (
            "Every waiting rank sends, and none receives. A send is complete only when the other side receives: "
            "let some ranks receive first, or start the send with isend, receive, then wait for it."
        )
    if kinds == {"recv"}:
        dropped = _dropped_send(outcome, waiting)
        if dropped:
            return dropped
        if len(waiting) == len(outcome.ends):
            return "Every rank waits to receive, and nobody sends."
    if kinds and kinds.isdisjoint(POINT_TO_POINT):
        absent = [end.rank for end in outcome.ends if end.state == "finished"]
        if absent:
            return (
                "A collective is complete only when every rank of its group has called it, and "
                f"{hang.rank_words(absent)} finished without. Look for an `if` or an early `return` around the call."
            )
    if any(row.state == "runs" for row in rows) and not kinds:
        return "These ranks are in no call at all: look for a loop that never ends."
    return ""


def _dropped_send(outcome: Outcome, waiting: dict[int, list[Message]]) -> str:
    for message in (message for messages in waiting.values() for message in messages):
        sent = hang.dropped_send(message, outcome.logs)
        if sent is not None:
            return (
                f"Rank {sent.rank} has called isend to rank {sent.peer} but never waited for it: keep the handle "
                "that isend returns and call .wait() on it, since a dropped handle cancels the send."
            )
    return ""
