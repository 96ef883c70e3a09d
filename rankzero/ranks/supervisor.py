"""The parent of one launch's ranks: it starts them, reports their deaths, and leaves nothing behind.

It is the adoptive parent of whatever its ranks start, daemons included, and kills them all when the owner
says so or goes away.
"""

from __future__ import annotations

import contextlib
import os
import selectors
import signal
import socket
import subprocess
import sys
import time

from rankzero.ranks import start
from rankzero.ranks.channel import Channel, ChannelClosed, Parser


def main(request: dict, fds: list[int]) -> None:
    """Supervise the ranks of one launch; ``fds``: status socket, store's socket, then channel, log, output per rank."""
    os.setsid()
    start.adopt_orphans()
    status = socket.socket(fileno=fds[0])
    reader, writer = os.pipe()
    os.set_blocking(writer, False)
    os.set_blocking(reader, False)
    signal.signal(signal.SIGCHLD, lambda *_: None)
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    signal.set_wakeup_fd(writer, warn_on_full_buffer=False)
    ranks: dict[int, int] = {}
    for rank in range(request["ranks"]):
        own = [*fds[2 + 3 * rank : 5 + 3 * rank], fds[1]]
        ranks[_start_rank(request, rank, own, [*fds, reader, writer])] = rank
    for fd in fds[1:]:
        os.close(fd)
    try:
        _watch(status, reader, ranks)
    finally:
        _kill_descendants()


def _start_rank(request: dict, rank: int, own: list[int], inherited: list[int]) -> int:
    if not start.warm_fork():
        arguments = [sys.executable, "-m", "rankzero.ranks.worker", str(rank), str(request["ranks"]), *map(str, own)]
        return subprocess.Popen(arguments, pass_fds=own, start_new_session=True).pid
    pid = os.fork()
    if pid == 0:
        try:
            start.die_with_parent()
            signal.set_wakeup_fd(-1)
            os.setsid()
            for fd in inherited:
                if fd not in own:
                    os.close(fd)
            from rankzero.ranks import worker

            worker.main(rank, request["ranks"], own)
        except BaseException:
            import traceback

            traceback.print_exc()
        finally:
            os._exit(1)
    return pid


def _watch(status: socket.socket, reader: int, ranks: dict[int, int]) -> None:
    """Pass signals on, report exits, until the owner closes the launch or goes away."""
    channel, parser = Channel(status), Parser()
    with selectors.DefaultSelector() as selector:
        selector.register(status, selectors.EVENT_READ)
        selector.register(reader, selectors.EVENT_READ)
        while True:
            for key, _ in selector.select():
                if key.fileobj == reader:
                    with contextlib.suppress(BlockingIOError):
                        os.read(reader, 4096)
                    for pid, code in _reap():
                        if pid in ranks:
                            with contextlib.suppress(ChannelClosed):
                                channel.send({"exited": ranks[pid], "code": code})
                    continue
                try:
                    data = status.recv(4096)
                except ConnectionError:
                    data = b""
                if not data:
                    return
                for request, _ in parser.feed(data):
                    for pid, rank in ranks.items():
                        if rank in request["ranks"]:
                            with contextlib.suppress(ProcessLookupError):
                                os.kill(pid, request["signal"])


def _reap() -> list[tuple[int, int]]:
    """The children that have ended: pid, and exit code (negative for a signal)."""
    ended = []
    while True:
        try:
            pid, status = os.waitpid(-1, os.WNOHANG)
        except ChildProcessError:
            return ended
        if pid == 0:
            return ended
        ended.append((pid, os.waitstatus_to_exitcode(status)))


def _kill_descendants() -> None:
    """Kill everything below this process; orphans come to us as their parents die, so repeat until none is left."""
    deadline = time.monotonic() + 5
    while (alive := start.children_of(os.getpid())) and time.monotonic() < deadline:
        for pid in alive:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        _reap()
        time.sleep(0.002)


def main_spawned() -> None:
    """Entry of a supervisor that was started as a process of its own: ``RANKS FD FD …``."""
    count, *fds = map(int, sys.argv[1:])
    main({"ranks": count}, fds)


if __name__ == "__main__":
    main_spawned()
