"""The owner's connections to one launch's ranks: a channel, an output and a log for each, and their status."""

from __future__ import annotations

import contextlib
import os
import selectors
import signal
import socket
import time
from typing import Any

from rankzero.observe import log as logs
from rankzero.ranks import hang, start
from rankzero.ranks.channel import MAX_BLOB_BYTES, Channel, ChannelClosed, ChannelFault, Parser, pack
from rankzero.ranks.outcome import RankEnd
from rankzero.ranks.output import Output

_TICK_SECONDS = 0.05
#: When one rank has failed, the others get this long to end by themselves.
_GRACE_SECONDS = 1.0
#: No event for this long, and a deadlock is looked for.
_QUIET_SECONDS = 0.4


class Connections:
    """Sockets and files of ``ranks`` ranks.

    ``theirs`` lists the file descriptors to hand to the supervisor, in its order; ``port`` is the one at
    which rank 0 will serve the store.
    """

    def __init__(self, ranks: int, max_result_bytes: int = MAX_BLOB_BYTES):
        self.ranks = ranks
        self.exit_codes: dict[int, int] = {}
        self._parsers = [Parser(max_result_bytes) for _ in range(ranks)]
        self._channels: list[socket.socket] = []
        self._outputs: list[int] = []
        self._logs: list[int] = []
        status, their_status = socket.socketpair()
        self._status = Channel(status)
        self._status_parser = Parser()
        self._listener = socket.create_server(("127.0.0.1", 0), backlog=ranks + 8)
        self.port = self._listener.getsockname()[1]
        self._lent = [their_status.detach()]
        self.theirs = [self._lent[0], self._listener.fileno()]
        for rank in range(ranks):
            ours, channel = socket.socketpair()
            reader, writer = os.pipe()
            self._channels.append(ours)
            self._outputs.append(reader)
            self._logs.append(start.anonymous_file(f"rank{rank}"))
            self._lent += [channel.detach(), writer]
            self.theirs += [self._lent[-2], self._logs[-1], writer]

    def handed_over(self) -> None:
        """The supervisor holds its ends now; close ours of them, so that a death is seen as an end of file."""
        for fd in self._lent:
            os.close(fd)
        self._lent = []
        self._listener.close()

    def close(self) -> None:
        """Close everything, and wait until the supervisor says, by closing too, that nothing is left below it."""
        self.handed_over()
        for fd in (*self._logs, *self._outputs):
            os.close(fd)
        for sock in self._channels:
            sock.close()
        self._logs, self._outputs, self._channels = [], [], []
        with contextlib.suppress(OSError):
            self._status.socket.shutdown(socket.SHUT_WR)
            self._status.socket.settimeout(6)
            while self._status.socket.recv(4096):
                pass
        self._status.close()

    def send(self, headers: dict, packed: list[bytes] | None = None) -> None:
        """Send every rank a message; a rank that has gone is noticed when it is read."""
        for rank, sock in enumerate(self._channels):
            sock.setblocking(True)
            with contextlib.suppress(OSError):
                sock.sendall(pack(headers, *([] if packed is None else [packed[rank]])))

    def signal(self, number: int, ranks: list[int]) -> None:
        """Have the supervisor send a signal to some ranks."""
        with contextlib.suppress(ChannelClosed):
            self._status.send({"signal": int(number), "ranks": ranks})

    # ── logs ─────────────────────────────────────────────────────────────────────────────────────

    def log_sizes(self) -> list[int]:
        """How long each rank's log is now; a call's log begins at the sizes before it."""
        return [os.fstat(fd).st_size for fd in self._logs]

    def read_logs(self, offsets: list[int]) -> list[logs.RankLog]:
        """What each rank wrote since ``offsets``."""
        texts = [
            os.pread(fd, min(size - offset, 1 << 26), offset)
            for fd, size, offset in zip(self._logs, self.log_sizes(), offsets, strict=True)
        ]
        return [logs.read(rank, text.decode("utf-8", "replace")) for rank, text in enumerate(texts)]

    def dump_stacks(self, ranks: list[int]) -> None:
        """Have ranks write their stacks into their logs; works inside a C call and in an endless loop alike."""
        before = self.log_sizes()
        self.signal(signal.SIGUSR1, ranks)
        until = time.monotonic() + 0.5
        while time.monotonic() < until and any(self.log_sizes()[rank] == before[rank] for rank in ranks):
            time.sleep(0.005)
        time.sleep(0.01)

    # ── waiting ──────────────────────────────────────────────────────────────────────────────────

    def collect(
        self, ends: list[RankEnd], output: Output, deadline: float, offsets: list[int] | None = None
    ) -> str | None:
        """Read from all ranks until each has ended, or waiting on is pointless.

        With ``offsets`` (where the call's logs begin) a deadlock is looked for whenever the ranks are quiet.

        Returns:
            why it stopped early: "deadline", "failure" (of another rank), "deadlock"; None if all ended.
        """
        failed_at: float | None = None
        sizes, changed_at, looked = self.log_sizes(), time.monotonic(), 0.0
        with selectors.DefaultSelector() as selector:
            self._register(selector, ends)
            while any(end.state == "unfinished" for end in ends):
                now = time.monotonic()
                if now >= deadline:
                    return "deadline"
                if failed_at is not None and now - failed_at > _GRACE_SECONDS:
                    return "failure"
                for key, _ in selector.select(min(_TICK_SECONDS, deadline - now)):
                    self._read(selector, key, ends, output)
                output.tick()
                if failed_at is None and any(end.failed for end in ends):
                    failed_at = time.monotonic()
                if offsets is None:
                    continue
                if (new := self.log_sizes()) != sizes:
                    sizes, changed_at, looked = new, time.monotonic(), 0.0
                elif (quiet := time.monotonic() - changed_at) > looked + _QUIET_SECONDS:
                    looked = quiet
                    if hang.is_deadlock([end.state for end in ends], self.read_logs(offsets), quiet):
                        return "deadlock"
        return None

    def drain(self, output: Output) -> None:
        """Take what still stands in the output pipes."""
        for rank, fd in enumerate(self._outputs):
            os.set_blocking(fd, False)
            with contextlib.suppress(OSError):
                for _ in range(64):
                    data = os.read(fd, 1 << 20)
                    if not data:
                        break
                    output.feed(rank, data)

    def _register(self, selector: selectors.BaseSelector, ends: list[RankEnd]) -> None:
        selector.register(self._status.socket, selectors.EVENT_READ, ("status", 0))
        for rank in range(self.ranks):
            if rank in self.exit_codes:
                ends[rank].has_exited(self.exit_codes[rank])
                continue
            self._channels[rank].setblocking(False)
            selector.register(self._channels[rank], selectors.EVENT_READ, ("channel", rank))
            selector.register(self._outputs[rank], selectors.EVENT_READ, ("output", rank))

    def _read(self, selector: selectors.BaseSelector, key: Any, ends: list[RankEnd], output: Output) -> None:
        what, rank = key.data
        try:
            data = os.read(key.fd, 1 << 20)
        except BlockingIOError:
            return
        except OSError:
            data = b""
        if not data:
            selector.unregister(key.fileobj)
            if what == "status":  # the supervisor has gone, and with it whatever ranks still ran
                for end in ends:
                    end.has_exited(self.exit_codes.get(end.rank, -signal.SIGKILL))
        elif what == "output":
            output.feed(rank, data)
        elif what == "status":
            for header, _ in self._status_parser.feed(data):
                self.exit_codes[header["exited"]] = header["code"]
                ends[header["exited"]].has_exited(header["code"])
        else:
            try:
                for header, blobs in self._parsers[rank].feed(data):
                    ends[rank].has_ended(header, blobs)
            except ChannelFault as fault:
                ends[rank].has_ended({"end": "raised", "type": "ChannelFault", "message": str(fault)}, [])
                selector.unregister(key.fileobj)
