"""The warm server: a process that has imported torch and forks ranks from itself in milliseconds.

It never runs the learner's code and never touches CUDA, so its forks may do both. It lives as long as the
process that started it: when the last end of its control socket closes, it goes.
"""

from __future__ import annotations

import contextlib
import importlib
import json
import os
import selectors
import signal
import socket
import sys

from rankzero.ranks import supervisor

MAX_REQUEST_BYTES = 1 << 16
MAX_FDS = 253


def main(control_fd: int) -> None:
    """Serve requests from the socket ``control_fd`` until all its other ends are closed."""
    import gc
    import warnings

    warnings.filterwarnings("ignore")
    from rankzero.ranks import worker

    worker.preload()
    gc.collect()
    gc.freeze()
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    selector = selectors.DefaultSelector()
    control = socket.socket(fileno=control_fd)
    selector.register(control, selectors.EVENT_READ)
    while selector.get_map():
        for key, _ in selector.select():
            client = key.fileobj
            try:
                text, fds, _, _ = socket.recv_fds(client, MAX_REQUEST_BYTES, MAX_FDS)
            except OSError:
                text, fds = b"", []
            if not text:
                selector.unregister(client)
                client.close()
                continue
            _fork(json.loads(text), fds, selector)
            for fd in fds:
                os.close(fd)


def _fork(request: dict, fds: list[int], selector: selectors.BaseSelector) -> None:
    """Fork the child that a request asks for: a launch's supervisor, or a service with a socket of its own."""
    service = request.get("service")
    ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET) if service else (None, None)
    if os.fork() == 0:
        try:
            for key in list(selector.get_map().values()):
                key.fileobj.close()
            selector.close()
            signal.signal(signal.SIGCHLD, signal.SIG_DFL)
            if service:
                ours.close()
                module, _, function = service.partition(":")
                getattr(importlib.import_module(module), function)(theirs, fds, request)
            else:
                supervisor.main(request, fds)
        except BaseException:
            import traceback

            traceback.print_exc()
        finally:
            with contextlib.suppress(Exception):
                sys.stdout.flush()
                sys.stderr.flush()
            os._exit(0)
    if service:
        theirs.close()
        selector.register(ours, selectors.EVENT_READ)


if __name__ == "__main__":
    main(int(sys.argv[1]))
