"""One launch: ranks that were started together, for any number of calls."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from operator import index
from typing import Any

from rankzero.ranks import hang, start, warm
from rankzero.ranks.channel import MAX_BLOB_BYTES
from rankzero.ranks.connections import Connections
from rankzero.ranks.errors import LaunchError
from rankzero.ranks.outcome import Outcome, RankEnd
from rankzero.ranks.output import Output
from rankzero.ranks.pickling import dumps, pickling_error

_JOIN_SECONDS = 90.0
#: After an interrupt, ranks get this long to come back from their code by themselves.
_INTERRUPT_SECONDS = 1.0
_BACKENDS = ("auto", "gloo", "nccl", None)


class Launch:
    """``ranks`` processes in one process group.

    Args:
        ranks: the world size, 1 to 64.
        backend: "auto" (NCCL where there is a GPU per rank, gloo otherwise), "gloo", "nccl", or None for no
            process group.
        max_result_bytes: what one rank may send back; more is an error of that rank.

    Attributes:
        usable: False once it is closed, or a call has left something undone.

    Raises:
        ValueError: a world size or a backend that cannot be.
        LaunchError: the ranks could not be started.
    """

    def __init__(self, ranks: int, backend: str | None = "auto", max_result_bytes: int = MAX_BLOB_BYTES):
        start.refuse_unknown_platforms()
        self.ranks = checked_ranks(ranks)
        self._backend = _checked_backend(backend, ranks)
        self._max_result_bytes = max_result_bytes
        self._owner_pid = os.getpid()
        self._supervisor: subprocess.Popen | None = None
        self.usable = False
        try:
            self._start()
        except (LaunchError, OSError):
            if not warm.has_died():
                raise
            self._start()

    def _start(self) -> None:
        self._connections = Connections(self.ranks, self._max_result_bytes)
        self.usable = True
        try:
            self._start_processes()
            self._join()
        except BaseException:
            self.close()
            raise

    def _start_processes(self) -> None:
        connections = self._connections
        if start.warm_fork():
            warm.server().ask({"ranks": self.ranks}, connections.theirs)
        else:
            arguments = [sys.executable, "-m", "rankzero.ranks.supervisor", str(self.ranks)]
            self._supervisor = subprocess.Popen(
                [*arguments, *map(str, connections.theirs)],
                pass_fds=connections.theirs,
                env={**os.environ, **start.rank_environment()},
                stdin=subprocess.DEVNULL,
            )
        connections.handed_over()

    def _join(self) -> None:
        """Have the ranks form their group, and wait until they have."""
        connections = self._connections
        threads = max(1, (os.cpu_count() or 1) // self.ranks)
        connections.send(
            {"backend": self._backend, "port": connections.port, "threads": threads, "context": _own_context()}
        )
        ends = [RankEnd(rank) for rank in range(self.ranks)]
        connections.collect(ends, Output(self.ranks, None), time.monotonic() + _JOIN_SECONDS)
        failed = [end for end in ends if end.state != "joined"]
        if failed:
            reasons = "; ".join(f"rank {end.rank}: {end.message or end.state}" for end in failed[:3])
            raise LaunchError(f"{len(failed)} of {self.ranks} ranks could not join the process group ({reasons})")

    def close(self) -> None:
        """End the ranks and whatever they started. Harmless when called again."""
        if self.usable and self._owner_pid == os.getpid():
            self._connections.close()
            if self._supervisor is not None:
                self._supervisor.wait()
        self.usable = False

    def __del__(self) -> None:
        with contextlib.suppress(Exception):
            self.close()

    def call(
        self,
        function: Callable,
        arguments: Sequence[tuple[tuple, dict]],
        *,
        timeout: float = 30.0,
        watched: bool = False,
        recorded: bool = True,
        plain: bool = False,
        write: Callable[[str], object] | None = None,
    ) -> Outcome:
        """Run ``function`` on every rank with its ``arguments[rank]``, for at most ``timeout`` seconds.

        Whatever happens in the ranks is told by the outcome. Only the owner's own interrupt is raised from
        here: a KeyboardInterrupt whose ``outcome`` attribute tells where the ranks were. With ``plain``,
        results come back as plain data, and nothing that ranks send is unpickled. Without ``recorded`` no
        call into torch.distributed is written down. After a call that left something undone the launch is
        closed.

        Raises:
            TypeError: the function or its arguments cannot be pickled.
        """
        packed = _pack(function, arguments)
        connections = self._connections
        offsets = connections.log_sizes()
        output = Output(self.ranks, write)
        ends = [RankEnd(rank) for rank in range(self.ranks)]
        interrupt: KeyboardInterrupt | None = None
        began = time.monotonic()
        try:
            connections.send({"watched": watched, "recorded": recorded, "plain": plain, "began": began}, packed)
            stopped = connections.collect(ends, output, began + timeout, offsets)
        except KeyboardInterrupt as error:
            interrupt, stopped = error, "interrupt"
        seconds = time.monotonic() - began
        unfinished = [end.rank for end in ends if end.state == "unfinished"]
        if unfinished:
            connections.dump_stacks(unfinished)
        rank_logs = connections.read_logs(offsets)
        ends_at_stop = ends
        if interrupt is not None and unfinished:
            ends_at_stop = [end.copy() for end in ends]
            connections.signal(signal.SIGINT, unfinished)
            connections.collect(ends, output, time.monotonic() + _INTERRUPT_SECONDS)
        connections.drain(output)
        output.finish()
        at_rest = all(end.state in ("finished", "raised") for end in ends)
        if not at_rest or not hang.is_balanced(connections.read_logs(offsets)):
            self.close()
        outcome = Outcome(ends_at_stop, rank_logs, stopped, seconds, timeout, output.text, plain)
        if interrupt is not None:
            interrupt.outcome = outcome
            raise interrupt
        return outcome


def _own_context() -> dict[str, Any]:
    """What a process started here and now would inherit; the warm server was started earlier."""
    return {"cwd": os.getcwd(), "path": sys.path, "argv": sys.argv, "environ": dict(os.environ)}


def checked_ranks(ranks: Any) -> int:
    """``ranks`` as an int.

    Raises:
        TypeError, ValueError: it is no whole number from 1 to 64.
    """
    try:
        count = index(ranks)
    except TypeError:
        raise TypeError(f"ranks must be a whole number, not {ranks!r}") from None
    if not 1 <= count <= start.MAX_RANKS:
        raise ValueError(
            f"ranks={count} cannot be started: each rank is a process of its own on this machine, "
            f"so it takes 1 to {start.MAX_RANKS} of them"
        )
    return count


def _checked_backend(backend: str | None, ranks: int) -> str | None:
    """The backend string for ``init_process_group``. Two ranks on one GPU are never given NCCL."""
    if backend not in _BACKENDS:
        raise ValueError(f"backend={backend!r} is unknown; use 'auto', 'gloo' or 'nccl'")
    if backend in (None, "gloo"):
        return backend
    gpus = start.gpu_count()
    if gpus >= ranks:
        return "cpu:gloo,cuda:nccl"
    if backend == "nccl":
        raise ValueError(
            f"NCCL needs a GPU of its own for each rank: {ranks} ranks were asked for and {gpus} GPUs are here; "
            "use backend='gloo', or fewer ranks"
        )
    return "gloo"


def _pack(function: Callable, arguments: Sequence[tuple[tuple, dict]]) -> list[bytes]:
    name = getattr(function, "__name__", repr(function))
    try:
        if all(argument is arguments[0] for argument in arguments):
            return [dumps((function, *arguments[0]))] * len(arguments)
        return [dumps((function, *argument)) for argument in arguments]
    except Exception as error:
        raise pickling_error(name, (function, *arguments[0]), error) from None
