"""Counts the bytes of tensors that are alive, operator by operator."""

from __future__ import annotations

import time
from collections.abc import Iterator
from typing import Any

import torch
from torch.multiprocessing.reductions import StorageWeakRef
from torch.utils._python_dispatch import is_traceable_wrapper_subclass

#: gloo holds a finished buffer for a moment; a new peak right after traffic is believed only if it lasts.
_SETTLE_SECONDS = 0.010


class Storages:
    """A set of the CPU storages that tensors stand on, without keeping any of them alive.

    Each storage's size is read anew whenever it is counted, since sharded training resizes storages in place.
    """

    def __init__(self) -> None:
        self._references: dict[int, StorageWeakRef] = {}

    def add(self, tensor: torch.Tensor, unless: Storages | None = None) -> None:
        """Add a tensor's storage, unless it is in another set. Tensors that stand on no CPU storage are passed over."""
        storage = cpu_storage(tensor)
        # The address of a storage stays its own as long as a weak reference to it is held.
        if storage is None or storage._cdata in self._references or (unless and storage._cdata in unless._references):
            return
        self._references[storage._cdata] = StorageWeakRef(storage)

    def __contains__(self, key: int) -> bool:
        """Whether a storage is, or was, in the set, by its key."""
        return key in self._references

    def sizes(self) -> dict[int, int]:
        """The bytes of each storage that is alive now, by a key that stays its own as long as it is in the set."""
        return {storage._cdata: storage.nbytes() for storage in self.alive()}

    def alive(self) -> Iterator[torch.UntypedStorage]:
        """The storages alive now, one by one; whoever keeps one keeps it alive."""
        for key, reference in list(self._references.items()):
            storage = torch.UntypedStorage._new_with_weak_ptr(reference.cdata)
            if storage is None:
                del self._references[key]
            else:
                yield storage

    def live_bytes(self) -> int:
        """The bytes alive now."""
        return sum(self.sizes().values())


def cpu_storage(tensor: torch.Tensor) -> torch.UntypedStorage | None:
    """The CPU storage under a tensor; None for a tensor that has none of its own."""
    if tensor.layout is not torch.strided or tensor.device.type != "cpu":
        return None
    if type(tensor) is not torch.Tensor and is_traceable_wrapper_subclass(tensor):
        return None
    storage = tensor.untyped_storage()
    return storage if storage.device.type == "cpu" else None


class MemoryMeter:
    """Live bytes of the CPU storages that were made since the meter began.

    Storages, not tensors, are counted, so views cost nothing. What lived before is left out: a storage that is
    first seen as an operator's input was there already.

    Attributes:
        peak_bytes: the most that was alive at once.
    """

    def __init__(self) -> None:
        self.peak_bytes = 0
        self._made = Storages()
        self._older = Storages()
        self._traffic = False
        self._peaks = True

    def before(self, func: Any, args: tuple, kwargs: dict) -> None:
        """Note an operator's inputs. ``torch.tensor`` makes its storage unseen and lifts it: that is new."""
        new = "lift_fresh" in func._schema.name
        for tensor in tensors_in((*args, *kwargs.values())):
            if new:
                self._made.add(tensor, unless=self._older)
            else:
                self._older.add(tensor, unless=self._made)

    def after(self, out: Any) -> None:
        """Note an operator's outputs, and count."""
        for tensor in tensors_in((out,)):
            self._made.add(tensor, unless=self._older)
        if not self._peaks:
            return
        live = self.live_bytes()
        if live > self.peak_bytes and self._traffic:
            until = time.monotonic() + _SETTLE_SECONDS
            while live > self.peak_bytes and time.monotonic() < until:
                time.sleep(0.001)
                live = self.live_bytes()
        self._traffic = False
        self.peak_bytes = max(self.peak_bytes, live)

    def traffic(self) -> None:
        """A message has just been issued."""
        self._traffic = True

    def live_bytes(self) -> int:
        """The bytes alive now."""
        return self._made.live_bytes()

    def live(self) -> Iterator[torch.UntypedStorage]:
        """The storages alive now, one by one; whoever keeps one keeps it alive."""
        return self._made.alive()

    def stop_peak(self) -> None:
        """Note no more peaks until they are restarted: where nobody asks for them, they only cost time."""
        self._peaks = False

    def restart_peak(self) -> None:
        """Count the peak from now on."""
        self._peaks = True
        self.peak_bytes = self.live_bytes()


def tensors_in(values: Any):
    """All tensors among an operator's arguments or results."""
    for value in values:
        if is_traceable_wrapper_subclass(value):
            # A DTensor or the like has no memory of its own; what it wraps has.
            yield from tensors_in([getattr(value, name) for name in value.__tensor_flatten__()[0]])
        elif isinstance(value, torch.Tensor):
            yield value
        elif isinstance(value, (list, tuple)):
            yield from tensors_in(value)
