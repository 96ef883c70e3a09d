"""How many bytes of tensors are alive in this process, asked at any moment."""

from __future__ import annotations

import gc
import threading
import weakref

import torch

from rankzero.observe.memory import Storages

#: Storages that were ever seen alive. Weak: nothing is kept alive by being counted.
_seen = Storages()
#: Parameters and other leaves that were ever seen, by id: backward gives them gradients that Python has not held yet,
#: and `model.bfloat16()` puts other storages under them.
_leaves: dict[int, weakref.ref] = {}
_lock = threading.RLock()
_watching = False


def live_bytes() -> int:
    """Bytes of all tensors alive in this process: CPU storages, and on CUDA what the caching allocator gave out.

    Storages are counted, once each, so views cost nothing. A CPU tensor is found while Python holds it, or as the
    gradient of one that Python holds, and from then on until its storage dies, also where only autograd keeps it.
    So, to follow a computation, ask after each operator (in a ``TorchDispatchMode``), not only at its end.
    """
    global _watching
    with _lock:
        if not _watching:
            _watching = True
            gc.callbacks.append(_before_collection)
            _look(None)
        else:
            # What is new is young; whatever was about to grow old has been looked at by the callback below.
            _look(0)
        _look_at_leaves()
        total = _seen.live_bytes()
    if torch.cuda.is_available() and torch.cuda.is_initialized():
        total += sum(torch.cuda.memory_allocated(device) for device in range(torch.cuda.device_count()))
    return total


def _before_collection(phase: str, info: dict) -> None:
    """Look at the young objects before the garbage collector moves them on."""
    if phase == "start" and _lock.acquire(blocking=False):
        try:
            _look(0)
        finally:
            _lock.release()


def _look(generation: int | None) -> None:
    for thing in gc.get_objects(generation):
        # Not isinstance: that asks an object for its class, and proxies then wake up.
        if issubclass(type(thing), torch.Tensor):
            _seen.add(thing)
            leaf = isinstance(thing, torch.nn.Parameter) or (thing.requires_grad and thing.is_leaf)
            if leaf and ((known := _leaves.get(id(thing))) is None or known() is not thing):
                _leaves[id(thing)] = weakref.ref(thing)


def _look_at_leaves() -> None:
    for key, reference in list(_leaves.items()):
        leaf = reference()
        if leaf is None:
            del _leaves[key]
            continue
        _seen.add(leaf)
        if leaf.is_leaf and leaf.grad is not None:
            _seen.add(leaf.grad)
