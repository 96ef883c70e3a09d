"""What a rank does: join the others, run the calls that its owner sends, report each one's end."""

from __future__ import annotations

import contextlib
import faulthandler
import io
import os
import pickle
import random
import signal
import socket
import sys
import traceback
from typing import Any

from rankzero.ranks import start, wire
from rankzero.ranks.channel import Channel, ChannelClosed
from rankzero.ranks.source import learners_frames


def preload() -> None:
    """Import what every rank needs; the warm server does this once for all of them."""
    os.environ.update(start.rank_environment())
    import torch
    import torch.distributed as dist  # noqa: F401

    from rankzero.observe import recorder
    from rankzero.ranks import pickling  # noqa: F401

    torch.set_num_threads(1)
    recorder.install()


def main(rank: int, ranks: int, fds: list[int]) -> None:
    """Run a rank to its end; ``fds`` are its channel, its log, its output, and the store's socket. Does not return."""
    channel_fd, log_fd, output_fd, listen_fd = fds
    os.dup2(output_fd, 1)
    os.dup2(output_fd, 2)
    devnull = os.open(os.devnull, os.O_RDONLY)
    os.dup2(devnull, 0)
    sys.stdin = open(0, closefd=False)  # noqa: SIM115
    sys.stdout = io.TextIOWrapper(os.fdopen(1, "wb", closefd=False), "utf-8", "backslashreplace", line_buffering=True)
    sys.stderr = io.TextIOWrapper(os.fdopen(2, "wb", closefd=False), "utf-8", "backslashreplace", line_buffering=True)
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)
    signal.signal(signal.SIGINT, signal.default_int_handler)
    faulthandler.register(signal.SIGUSR1, file=log_fd, all_threads=True)
    faulthandler.enable(file=log_fd, all_threads=True)
    random.seed()
    if "numpy" in sys.modules:
        sys.modules["numpy"].random.seed()
    try:
        serve_calls(Channel(socket.socket(fileno=channel_fd)), rank, ranks, log_fd, listen_fd)
    except (ChannelClosed, KeyboardInterrupt):
        pass
    finally:
        os._exit(0)


def serve_calls(channel: Channel, rank: int, ranks: int, log_fd: int, listen_fd: int) -> None:
    """Join the others, then run one call after the other until the owner closes the channel.

    A rank that has finished a call stays and waits: if it left, the others would see "connection closed by
    peer" instead of the true cause.
    """
    header, _ = channel.receive()
    try:
        _inherit(header["context"])
        _join(header, rank, ranks, listen_fd)
    except Exception as error:
        channel.send({"end": "failed to join", "message": f"{type(error).__name__}: {error}"})
        return
    channel.send({"end": "joined"})
    while True:
        try:
            header, blobs = channel.receive()
        except KeyboardInterrupt:
            continue
        channel.send(*_run(header, blobs, rank, log_fd))


def _inherit(context: dict) -> None:
    """Be as a process that the owner has started just now: its folder, its paths, its variables."""
    os.chdir(context["cwd"])
    sys.path[:] = context["path"]
    sys.argv[:] = context["argv"]
    variables = {**context["environ"], **start.rank_environment()}
    for name in set(os.environ) - set(variables):
        del os.environ[name]
    os.environ.update(variables)


def _join(header: dict, rank: int, ranks: int, listen_fd: int) -> None:
    """Form the default process group over a store at a port that the owner has bound already.

    Rank 0 serves the store on the owner's socket, so no port can be taken by another in between. The owner
    keeps the time, so the group's own limit is a day.
    """
    import datetime

    import torch
    import torch.distributed as dist

    torch.set_num_threads(header["threads"])
    if header["backend"] is None:
        return
    forever = datetime.timedelta(days=1)
    if "nccl" in header["backend"]:
        torch.cuda.set_device(rank)
    listening = {"master_listen_fd": listen_fd} if rank == 0 else {}
    store = dist.TCPStore("127.0.0.1", header["port"], ranks, rank == 0, forever, wait_for_workers=False, **listening)
    dist.init_process_group(header["backend"], store=store, rank=rank, world_size=ranks, timeout=forever)


def _run(header: dict, blobs: list[bytes], rank: int, log_fd: int) -> tuple[Any, ...]:
    """Run one call; return the message that says how it ended."""
    from rankzero.observe.recorder import Recorder

    recorder = Recorder(log_fd, rank, header["began"], watched=header["watched"])
    memory = recorder.memory
    result = None
    try:
        function, args, kwargs = pickle.loads(blobs[0])
        if header["recorded"]:
            recorder.start()
        try:
            result = function(*args, **kwargs)
        finally:
            recorder.stop()
        end = {"end": "finished"}
    except BaseException as error:
        end = {"end": "raised", **_describe(error)}
    end["kept_bytes"] = memory.live_bytes() if memory else 0
    end["peak_bytes"] = memory.peak_bytes if memory else 0
    payload: list[bytes] = []
    if end["end"] == "finished":
        try:
            end["tree"], payload = _encode(result, header["plain"])
        except Exception as error:
            reason = f"{type(error).__name__}: {error}"
            end = {"end": "raised", **_describe(error), "type": "TypeError", "frames": []}
            end["message"] = f"the result, a {type(result).__name__}, cannot travel back from the rank ({reason})"
    with contextlib.suppress(Exception):
        sys.stdout.flush()
        sys.stderr.flush()
    return (end, *payload)


def _encode(result: Any, plain: bool) -> tuple[Any, list[bytes]]:
    if plain:
        return wire.encode(result)
    from rankzero.ranks.pickling import dumps

    return None, [dumps(result)]


def _describe(error: BaseException) -> dict[str, Any]:
    """An exception in words, with the learner's own frames."""
    frames = learners_frames(error.__traceback__)
    if isinstance(error, SyntaxError) and error.filename and error.lineno:
        frames.append((error.filename, error.lineno, "<module>"))
    try:
        message = str(error)
    except BaseException:
        message = "(its message could not be read)"
    return {
        "type": type(error).__name__,
        "message": message[:4000],
        "frames": [list(frame) for frame in frames[-20:]],
        "traceback": "".join(traceback.format_exception(type(error), error, error.__traceback__))[-8000:],
    }


def main_spawned() -> None:
    """Entry of a rank that was started as a process of its own: ``RANK RANKS CHANNEL LOG OUTPUT STORE``."""
    rank, ranks, *fds = map(int, sys.argv[1:])
    start.die_with_parent()
    preload()
    main(rank, ranks, fds)


if __name__ == "__main__":
    main_spawned()
