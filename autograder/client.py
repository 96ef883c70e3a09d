"""The kernel's side of judging: hand answers to the judge process, wait for its verdict."""

from __future__ import annotations

import atexit
import contextlib
import os
import signal
import socket

from autograder.exercise import Exercise
from autograder.service import ADDRESS_VARIABLE, start_judge
from autograder.verdict import Verdict
from rankzero.ranks import source
from rankzero.ranks.channel import Channel, ChannelClosed
from rankzero.ranks.pickling import dumps, pickling_error

_channel: Channel | None = None
_judge_pid: int | None = None
_owner_pid: int | None = None


class JudgeError(RuntimeError):
    """The judge could not give a verdict."""


def connect() -> Channel:
    """The channel to this process's judge; the judge is started if there is none."""
    global _channel, _judge_pid, _owner_pid
    if _channel is None or _owner_pid != os.getpid():
        address = os.environ.get(ADDRESS_VARIABLE)
        if address:
            sock = socket.socket(socket.AF_UNIX)
            sock.connect(address)
            _channel = Channel(sock)
        else:
            _channel = start_judge({})
        _owner_pid = os.getpid()
        _channel.send({"ask": "hello"})
        _judge_pid = _channel.receive()[0]["pid"]
    return _channel


def ask(exercise: Exercise, answers: tuple, hidden: bool, seed: int = 0) -> Verdict:
    """The judge's verdict on ``answers``.

    Raises:
        TypeError: an answer cannot be sent.
        JudgeError: the judge has gone, or refused.
    """
    try:
        packed = dumps(answers)
    except Exception as error:
        raise pickling_error(" and ".join(exercise.names), answers, error) from None
    request = {"exercise": exercise.id, "hidden": hidden, "seed": seed, "cells": source.cell_sources()}
    for attempt in (1, 2):
        try:
            channel = connect()
            channel.send(request, packed)
            reply, _ = channel.receive()
            break
        except (ChannelClosed, OSError) as error:
            _forget()
            if attempt == 2:
                raise JudgeError(f"the judge process has gone ({error}); restart the kernel and try again") from None
        except KeyboardInterrupt:
            stop()
            raise
    if "error" in reply:
        raise JudgeError(reply["error"])
    return Verdict.from_json(reply["verdict"])


def stop() -> None:
    """End this process's own judge, whatever it is doing; its ranks end with it."""
    if _judge_pid and _owner_pid == os.getpid() and not os.environ.get(ADDRESS_VARIABLE):
        with contextlib.suppress(ProcessLookupError):
            os.kill(_judge_pid, signal.SIGKILL)
    _forget()


def _forget() -> None:
    global _channel
    if _channel is not None:
        _channel.close()
    _channel = None


atexit.register(stop)
