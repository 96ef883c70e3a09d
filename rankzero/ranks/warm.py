"""The owner's end of the warm server: start it once, ask it for launches and services."""

from __future__ import annotations

import atexit
import json
import os
import socket
import subprocess
import sys
import threading

from rankzero.ranks import start

_lock = threading.Lock()
_server: WarmServer | None = None


class WarmServer:
    """A running warm server of this process.

    ``control`` is the socket to ask over. A process that was itself forked from the server (the judge) is
    given one and needs to start nothing.
    """

    def __init__(self, control: socket.socket | None = None):
        self.owner_pid = os.getpid()
        self.process: subprocess.Popen | None = None
        if control is None:
            control, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
            self.process = subprocess.Popen(
                [sys.executable, "-m", "rankzero.ranks.server", str(theirs.fileno())],
                pass_fds=[theirs.fileno()],
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                start_new_session=True,
                env={**os.environ, **start.rank_environment(), "OMP_NUM_THREADS": "1"},
            )
            theirs.close()
        self._control = control

    def ask(self, request: dict, fds: list[int]) -> None:
        """Send a request with files.

        Raises:
            OSError: the server has gone.
        """
        socket.send_fds(self._control, [json.dumps(request).encode()], fds)

    def alive(self) -> bool:
        """Whether it still runs, and belongs to this very process and not to the one that forked it."""
        return self.owner_pid == os.getpid() and (self.process is None or self.process.poll() is None)

    def close(self) -> None:
        """Let it go; the server ends when nobody holds its socket."""
        self._control.close()
        if self.process is not None and self.owner_pid == os.getpid():
            try:
                self.process.wait(timeout=2)
            except subprocess.TimeoutExpired:
                self.process.kill()
                self.process.wait()


def server() -> WarmServer:
    """This process's warm server, started if there is none."""
    global _server
    with _lock:
        if _server is None or not _server.alive():
            _server = WarmServer()
        return _server


def has_died() -> bool:
    """Whether this process's server has been killed, or is just ending; the next use starts another."""
    if _server is None or _server.process is None:
        return False
    try:
        _server.process.wait(timeout=0.5)  # its sockets close a moment before it can be seen to have ended
        return True
    except subprocess.TimeoutExpired:
        return False


def adopt(control: socket.socket) -> None:
    """In a process forked from the server: use it through ``control`` from now on."""
    global _server
    _server = WarmServer(control)


def warm_up() -> None:
    """Start the warm server in the background and return at once, so that the first ranks need not wait."""
    start.refuse_unknown_platforms()
    if start.warm_fork():
        server()


@atexit.register
def _close() -> None:
    if _server is not None and _server.alive():
        _server.close()
