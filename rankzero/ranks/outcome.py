"""How a call on ranks ended: rank by rank, and as an observation."""

from __future__ import annotations

import copy
import pickle
import signal
from dataclasses import dataclass, field
from typing import Any

from rankzero.observe.log import RankLog
from rankzero.observe.observation import Frame, Observation
from rankzero.ranks import wire


@dataclass
class RankEnd:
    """How one rank's call ended.

    Attributes:
        state: "unfinished", "joined", "failed to join", "finished", "raised" or "exited".
        kind, message, frames, traceback: of the exception, if it raised; the frames are the learner's own.
        exit_code: if the process ended; negative for a signal.
    """

    rank: int
    state: str = "unfinished"
    kind: str = ""
    message: str = ""
    frames: list[Frame] = field(default_factory=list)
    traceback: str = ""
    exit_code: int | None = None
    peak_bytes: int = 0
    kept_bytes: int = 0
    tree: Any = None
    blobs: list[bytes] = field(default_factory=list)

    @property
    def failed(self) -> bool:
        """Whether it ended badly."""
        return self.state in ("raised", "exited", "failed to join")

    def has_ended(self, header: dict, blobs: list[bytes]) -> None:
        """The rank reported the end of its call. The report comes from a process that ran foreign code."""
        self.state = str(header.get("end"))
        self.kind = str(header.get("type", ""))
        self.message = str(header.get("message", ""))
        self.traceback = str(header.get("traceback", ""))
        frames = header.get("frames", [])
        self.frames = [Frame(str(file), int(line), str(name)) for file, line, name in frames]
        self.peak_bytes, self.kept_bytes = int(header.get("peak_bytes", 0)), int(header.get("kept_bytes", 0))
        self.tree, self.blobs = header.get("tree"), blobs

    def has_exited(self, code: int) -> None:
        """The rank's process has ended; a call that had reported its end before keeps that."""
        if self.state in ("unfinished", "joined"):
            self.state, self.exit_code = "exited", code

    def copy(self) -> RankEnd:
        """A copy that further reports do not change."""
        return copy.copy(self)

    def exit_words(self, talked: bool) -> str:
        """Why the process ended, in words; ``talked``: whether it had called another rank before."""
        code = self.exit_code or 0
        if code == -signal.SIGABRT and talked:
            return (
                "aborted (SIGABRT): gloo does that when ranks pass tensors of different byte size to one call; "
                "compare shapes and dtypes of the two sides"
            )
        if code == -signal.SIGKILL:
            return "was killed (SIGKILL), most likely because the machine ran out of memory"
        if code == -signal.SIGSEGV:
            return "crashed (SIGSEGV) inside compiled code"
        if code < 0:
            return f"was ended by signal {signal.Signals(-code).name}"
        return f"left by itself (os._exit or the like) with exit status {code}"


@dataclass
class Outcome:
    """How a call ended on all ranks.

    Attributes:
        ends: by rank.
        logs: what each rank's recorder wrote.
        stopped: why the owner stopped waiting: None, "deadline", "deadlock", "failure" or "interrupt".
        output: what each rank printed.
    """

    ends: list[RankEnd]
    logs: list[RankLog]
    stopped: str | None
    seconds: float
    timeout: float
    output: list[str]
    plain: bool

    @property
    def finished(self) -> bool:
        """Whether every rank came back with a result."""
        return all(end.state == "finished" for end in self.ends)

    def result(self, rank: int) -> Any:
        """What a finished rank returned.

        Raises:
            ValueError: plain data was agreed on, and something else came.
        """
        end = self.ends[rank]
        if self.plain:
            return wire.decode(end.tree, end.blobs)
        return pickle.loads(end.blobs[0])

    def observation(self) -> Observation:
        """What was seen. A rank that did not finish has the result None."""
        return Observation(
            ranks=len(self.ends),
            results=[self.result(end.rank) if end.state == "finished" else None for end in self.ends],
            messages=[message for log in self.logs for message in log.messages],
            peak_live_bytes=[end.peak_bytes for end in self.ends],
            kept_bytes=[end.kept_bytes for end in self.ends],
            seconds=self.seconds,
            marks=[mark for log in self.logs for mark in log.marks],
        )

    def raise_for_failure(self) -> None:
        """Raise the error that tells a learner what went wrong, if anything did.

        Raises:
            HangError: ranks did not finish, and none had failed before.
            RankError: a rank raised or its process ended.
        """
        from rankzero.ranks.errors import error_of

        if not self.finished:
            raise error_of(self)
