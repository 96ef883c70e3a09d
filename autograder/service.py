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
from rankzero.ranks.channel import Channel, ChannelFault, Parser, pack

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
    judged: dict[str, Verdict] = {}
    with selectors.DefaultSelector() as selector:
        selector.register(owner, selectors.EVENT_READ, Parser(MAX_ANSWER_BYTES))
        if len(fds) > 1:
            selector.register(socket.socket(fileno=fds[1]), selectors.EVENT_READ, None)
        while True:
            for key, _ in selector.select():
                client = key.fileobj
                if key.data is None:
                    client, _ = client.accept()
                    selector.register(client, selectors.EVENT_READ, Parser(MAX_ANSWER_BYTES))
                elif not _serve_client(client, key.data, client is owner, judged, options):
                    if client is owner:
                        return
                    selector.unregister(client)
                    client.close()


def _serve_client(
    client: socket.socket, parser: Parser, is_owner: bool, judged: dict[str, Verdict], options: dict
) -> bool:
    """Answer what a client has sent so far; return whether it is still there and to be listened to."""
    try:
        data = client.recv(1 << 20)
        for request, blobs in parser.feed(data):
            reply = _reply(request, blobs, is_owner, judged, options)
            client.sendall(pack(reply))
        return bool(data)
    except (OSError, ChannelFault):
        return False


def _reply(request: dict, blobs: list[bytes], is_owner: bool, judged: dict[str, Verdict], options: dict) -> dict:
    """The answer to one request; whatever is wrong with it is the answer, too."""
    if request.get("ask") == "hello":
        return {"pid": os.getpid()}
    if request.get("ask") == "verdicts":
        return {"verdicts": {name: verdict.as_json() for name, verdict in judged.items()} if is_owner else {}}
    try:
        exercise = find(str(request.get("exercise")))
        cells = request.get("cells", {})
        source.remember({str(file): (str(name), str(text)) for file, (name, text) in cells.items()})
        seed = options["seed"] if options.get("record") else int(request.get("seed", 0))
        verdict = judge(exercise, Answer.of_pickle(blobs[0]), hidden=bool(request.get("hidden")), seed=seed)
    except (UnknownExercise, ValueError, TypeError, AttributeError, IndexError) as error:
        return {"error": str(error)}
    if options.get("record") and request.get("hidden"):
        judged[exercise.id] = verdict
    return {"verdict": verdict.as_json()}


def main() -> None:
    """Entry of a judge that was started as a process of its own: ``SEED FD [FD]``."""
    seed, *fds = map(int, sys.argv[1:])
    with contextlib.suppress(KeyboardInterrupt):
        serve(None, fds, {"seed": seed, "record": len(fds) > 1})


if __name__ == "__main__":
    main()
