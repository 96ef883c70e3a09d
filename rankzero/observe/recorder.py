"""Runs inside a rank and writes down every call into torch.distributed, as it happens.

Each call is one JSON line, written before the call is made, so that the last line of a rank that hangs
or aborts says where it is. The lines are read by :mod:`rankzero.observe.log`.

Every way from Python into a process group passes the methods of ``dist.ProcessGroup``, and every one of
them passes the dispatcher as ``torch.ops.c10d.*``. So the methods are wrapped, and a dispatch mode inside
the wrapper reads kind, tensors and peer from the operator's fixed schema. While a rank is *watched* the
mode stays on for the whole call: then functional collectives (DTensor) and memory are seen as well.
What a raw backend object does, or code that switches dispatch modes off, is not seen.
"""

from __future__ import annotations

import functools
import json
import os
import sys
import threading
import time
import weakref
from collections import defaultdict
from typing import Any

import torch
import torch.distributed as dist
from torch.utils._python_dispatch import TorchDispatchMode

from rankzero.observe.memory import MemoryMeter
from rankzero.observe.observation import POINT_TO_POINT, Frame
from rankzero.observe.operators import GROUP_METHODS, OPERATORS, algorithm_bytes
from rankzero.ranks.source import frame_of

#: The recorder of the call that runs now; None between calls.
_current: Recorder | None = None


class Recorder:
    """Writes the calls of one rank to ``log_fd``, from ``start()`` to ``stop()``.

    With ``watched`` the whole call is under the dispatch mode and ``peak_live_bytes`` and ``kept_bytes``
    are measured; without, only calls through the process group's methods are seen, at no cost elsewhere.
    """

    def __init__(self, log_fd: int, rank: int, began: float, watched: bool):
        self._fd = log_fd
        self._rank = rank
        self._began = began
        self._lock = threading.Lock()
        self._count = 0
        self._seq: dict[tuple, int] = defaultdict(int)
        self._local = threading.local()
        self._works: dict[int, tuple[weakref.ref, list[int]]] = {}
        self._last_functional: list[int] = []
        self._mode = _Scope(self) if watched else None
        self.memory = MemoryMeter() if watched else None

    def start(self) -> None:
        global _current
        _current = self
        if self._mode is not None:
            self._local.active = True
            self._mode.__enter__()

    def stop(self) -> None:
        """Write no more; harmless if it was never started."""
        global _current
        started, _current = _current is self, None
        if started and self._mode is not None:
            self._mode.__exit__(None, None, None)

    # ── what the hooks below call ────────────────────────────────────────────────────────────────

    def group_method(self, method, group, args, kwargs):
        """A call of one of the process group's methods."""
        issued = self._local.issued = []
        self._local.reduce_op = _reduce_op((*args, *kwargs.values()))
        if getattr(self._local, "active", False):
            work = method(group, *args, **kwargs)
        else:
            with self._scope():
                work = method(group, *args, **kwargs)
        if isinstance(work, dist.Work):
            self._works[id(work)] = (weakref.ref(work), issued)
        elif issued:
            self._done(issued)
        return work

    def wait(self, wait, work, args, kwargs):
        """A call of ``Work.wait``."""
        known = self._works.pop(id(work), None)
        issued = known[1] if known and known[0]() is work else []
        self._wait(issued, frame_of(sys._getframe(2)))
        result = wait(work, *args, **kwargs)
        self._done(issued)
        return result

    def thread(self, run):
        """The body of a thread that was started while the rank is watched."""
        self._local.active = True
        with self._scope():
            run()

    def mark(self, name: str) -> None:
        """Something that the rank notes about itself."""
        self._write(f'"e": "mark", "name": {json.dumps(name)}, "calls": {self._count}')

    @property
    def watched(self) -> bool:
        return self._mode is not None

    @property
    def calls(self) -> int:
        """How many calls it has written so far: the index of the next message."""
        return self._count

    def operator(self, func, args, kwargs):
        """A call of any operator while a scope is on in this thread."""
        table = OPERATORS.get(func.namespace)
        name = func._schema.name.split("::")[1]
        if self.memory is not None:
            self.memory.before(func, args, kwargs)
        if table is None or name not in table:
            if name == "wait_tensor":
                self._wait(self._last_functional, frame_of(sys._getframe(2)))
            out = func(*args, **kwargs)
            if name == "wait_tensor":
                self._done(self._last_functional)
        else:
            index = self._call(table[name], args)
            if func.namespace == "c10d":
                getattr(self._local, "issued", []).append(index)
            else:
                self._last_functional = [index]
            out = func(*args, **kwargs)
            if self.memory is not None:
                self.memory.traffic()
        if self.memory is not None:
            self.memory.after(out)
        return out

    # ── writing ──────────────────────────────────────────────────────────────────────────────────

    def _call(self, entry: tuple, args: tuple) -> int:
        kind, tensors_at, group_at, peer_at = entry
        group = args[group_at]
        if isinstance(group, torch.ScriptObject):
            group = dist.ProcessGroup.unbox(group)
        elif isinstance(group, str):
            group = dist.distributed_c10d._resolve_process_group(group)
        members = dist.get_process_group_ranks(group)
        peer = None if peer_at is None else members[args[peer_at]]
        tensors = [] if tensors_at is None else _flat(args[tensors_at])
        payload = sum(tensor.numel() * tensor.element_size() for tensor in tensors)
        first = tensors[0] if tensors else None
        with self._lock:
            index, self._count = self._count, self._count + 1
            key = (kind, peer, tuple(members)) if kind in POINT_TO_POINT else tuple(members)
            seq = self._seq[key]
            self._seq[key] += 1
        shape = [] if first is None else list(first.shape)
        dtype = "" if first is None else str(first.dtype).removeprefix("torch.")
        sent = algorithm_bytes(kind, payload, len(members), peer == self._rank)
        reduce_op = getattr(self._local, "reduce_op", None)
        main = threading.current_thread() is threading.main_thread()
        self._write(
            f'"e": "call", "i": {index}, "kind": "{kind}", "group": {members}, "peer": {_json(peer)}, '
            f'"bytes": {payload}, "sent": {sent}, "shape": {shape}, "dtype": "{dtype}", "seq": {seq}, '
            f'"reduce": {_json(reduce_op)}, "main": {_json(main)}, "where": {_json(frame_of(sys._getframe(3)))}'
        )
        return index

    def _scope(self) -> _Scope:
        """This thread's scope; making one costs more than entering it."""
        if not hasattr(self._local, "scope"):
            self._local.scope = _Scope(self)
        return self._local.scope

    def _wait(self, issued: list[int], where: Frame | None) -> None:
        self._write(f'"e": "wait", "i": {issued}, "where": {_json(where)}')

    def _done(self, issued: list[int]) -> None:
        self._write(f'"e": "done", "i": {issued}')

    def _write(self, event: str) -> None:
        """Write one event. Its line is put together by hand: encoding a dict costs more than many a call."""
        os.write(self._fd, f'{{{event}, "t": {time.monotonic() - self._began:.7f}}}\n'.encode())


@functools.lru_cache(maxsize=4096, typed=True)  # 1 is not true in JSON
def _json(value: str | int | bool | Frame | None) -> str:
    return json.dumps(value)


class _Scope(TorchDispatchMode):
    """While it is entered, the recorder sees every operator of this thread."""

    def __init__(self, recorder: Recorder):
        super().__init__()
        self._recorder = recorder

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        return self._recorder.operator(func, args, kwargs or {})


def current() -> Recorder | None:
    """The recorder of the call that runs now in this rank; None if there is none."""
    return _current


def _flat(tensors: Any) -> list[torch.Tensor]:
    if isinstance(tensors, torch.Tensor):
        return [tensors]
    return [tensor for part in tensors for tensor in _flat(part)]


def _reduce_op(arguments: tuple) -> str | None:
    """The reduction among a method's arguments, as "sum", "avg" …; the operator itself does not show it."""
    for argument in arguments:
        op = getattr(argument, "reduceOp", argument)
        if isinstance(op, (dist.ReduceOp, dist.ReduceOp.RedOpType)):
            return str(getattr(op, "op", op)).rpartition(".")[2].lower()
    return None


def install() -> None:
    """Wrap the doors into torch.distributed, once per process. Without a recorder they do nothing more."""

    def wrap_method(method):
        def call(group, *args, **kwargs):
            if _current is None:
                return method(group, *args, **kwargs)
            return _current.group_method(method, group, args, kwargs)

        return call

    for name in GROUP_METHODS:
        if hasattr(dist.ProcessGroup, name):
            setattr(dist.ProcessGroup, name, wrap_method(getattr(dist.ProcessGroup, name)))

    original_wait = dist.Work.wait

    def wait(work, *args, **kwargs):
        if _current is None:
            return original_wait(work, *args, **kwargs)
        return _current.wait(original_wait, work, args, kwargs)

    dist.Work.wait = wait

    original_start = threading.Thread.start

    def start(thread):
        recorder = _current
        if recorder is not None and recorder.watched:
            run = thread.run
            thread.run = lambda: recorder.thread(run)
        original_start(thread)

    threading.Thread.start = start
    # The first scope costs about a second of imports inside torch; the warm server pays it, not the ranks.
    with open(os.devnull, "wb") as nowhere, _Scope(Recorder(nowhere.fileno(), 0, 0.0, watched=True)):
        torch.zeros(1)
