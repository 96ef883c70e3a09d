"""The judge as a process of its own, behind a Unix socket.

It is started before the learner's first cell runs and never unpickles what it is sent: it passes the bytes
on to ranks. There are two ways to own one. A learner's kernel starts a judge for itself (see
:mod:`autograder.client`). An instructor's process starts a :class:`JudgeService`, gives the kernel nothing
but the socket's address, and asks the judge itself for the verdicts: what the kernel prints counts nothing.
"""

from __future__ import annotations

import contextlib
import os
import selectors
import shutil
import socket
import subprocess
import sys
import tempfile

from autograder.exercise import UnknownExercise, find
from autograder.judge import Answer, judge
from autograder.verdict import Verdict
from rankzero.ranks import source, start, warm
from rankzero.ranks.channel import Channel, ChannelClosed, ChannelFault

#: An answer larger than this is refused. The largest right ones are some kilobytes.
MAX_ANSWER_BYTES = 64 * 2**20
#: The variable through which a kernel that is being graded learns where its judge is.
ADDRESS_VARIABLE = "AUTOGRADER_JUDGE"


class JudgeService:
    """A judge for one notebook that is being graded; use it as a context manager.

    Attributes:
        address: the path of the socket, for the kernel's environment under ``ADDRESS_VARIABLE``.
    """

    def __init__(self, seed: int):
        self._folder = tempfile.mkdtemp(prefix="judge-")
        self.address = os.path.join(self._folder, "socket")
        listener = socket.socket(socket.AF_UNIX)
        listener.bind(self.address)
        listener.listen(8)
        self._control = start_judge({"seed": seed, "record": True}, listener)
        listener.close()

    def verdicts(self) -> dict[str, Verdict]:
        """The verdicts on what the kernel has handed in so far, by exercise id."""
        self._control.send({"ask": "verdicts"})
        reply, _ = self._control.receive()
        return {name: Verdict.from_json(data) for name, data in reply["verdicts"].items()}

    def close(self) -> None:
        """End the judge and whatever it started."""
        self._control.close()
        shutil.rmtree(self._folder, ignore_errors=True)

    def __enter__(self) -> JudgeService:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def start_judge(options: dict, listener: socket.socket | None = None) -> Channel:
    """Start a judge and return the channel to it: forked from the warm server where there is one."""
    ours, theirs = socket.socketpair()
    fds = [theirs.fileno(), *([listener.fileno()] if listener else [])]
    if start.warm_fork():
        warm.server().ask({"service": "autograder.service:serve", **options}, fds)
    else:
        arguments = [sys.executable, "-m", "autograder.service", str(options.get("seed", 0)), *map(str, fds)]
        subprocess.Popen(arguments, pass_fds=fds, start_new_session=True, stdin=subprocess.DEVNULL)
    theirs.close()
    return Channel(ours)


def serve(control: socket.socket | None, fds: list[int], options: dict) -> None:
    """The judge's own process: answer the owner on ``fds[0]`` and, when grading, kernels that connect to ``fds[1]``.

    ``control`` leads to the warm server. It ends when the owner's end closes.
    """
    if control is not None:
        warm.adopt(control)
    owner = socket.socket(fileno=fds[0])
    with selectors.DefaultSelector() as selector:
        selector.register(owner, selectors.EVENT_READ, Channel(owner, MAX_ANSWER_BYTES))
        if len(fds) > 1:
            listener = socket.socket(fileno=fds[1])
            selector.register(listener, selectors.EVENT_READ, None)
        judged: dict[str, Verdict] = {}
        while True:
            for key, _ in selector.select():
                if key.data is None:
                    client, _ = key.fileobj.accept()
                    selector.register(client, selectors.EVENT_READ, Channel(client, MAX_ANSWER_BYTES))
                    continue
                try:
                    _answer(key.data, key.fileobj is owner, judged, options)
                except (ChannelClosed, ChannelFault):
                    if key.fileobj is owner:
                        return
                    selector.unregister(key.fileobj)
                    key.fileobj.close()


def _answer(channel: Channel, from_owner: bool, judged: dict[str, Verdict], options: dict) -> None:
    """Answer one request."""
    request, blobs = channel.receive()
    if request.get("ask") == "verdicts":
        if from_owner:
            channel.send({"verdicts": {name: verdict.as_json() for name, verdict in judged.items()}})
        return
    if request.get("ask") == "hello":
        channel.send({"pid": os.getpid()})
        return
    try:
        exercise = find(str(request.get("exercise")))
        cells = request.get("cells", {})
        source.remember({str(file): (str(name), str(text)) for file, (name, text) in cells.items()})
        seed = options["seed"] if options.get("record") else int(request.get("seed", 0))
        verdict = judge(exercise, Answer.of_pickle(blobs[0]), hidden=bool(request.get("hidden")), seed=seed)
    except (UnknownExercise, ValueError, TypeError, AttributeError, IndexError) as error:
        channel.send({"error": str(error)})
        return
    if options.get("record") and request.get("hidden"):
        judged[exercise.id] = verdict
    channel.send({"verdict": verdict.as_json()})


def main() -> None:
    """Entry of a judge that was started as a process of its own: ``SEED FD [FD]``."""
    seed, *fds = map(int, sys.argv[1:])
    with contextlib.suppress(KeyboardInterrupt):
        serve(None, fds, {"seed": seed, "record": len(fds) > 1})


if __name__ == "__main__":
    main()
