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


class MemoryMeter:
    """Live bytes of the CPU storages that were made since the meter began.

    Storages, not tensors, are counted, so views cost nothing, and each storage's size is read anew at each
    operator, since sharded training resizes storages in place. What lived before is left out: a storage
    that is first seen as an operator's input was there already.

    Attributes:
        peak_bytes: the most that was alive at once.
    """

    def __init__(self) -> None:
        self.peak_bytes = 0
        self._made: dict[int, StorageWeakRef] = {}
        self._older: dict[int, StorageWeakRef] = {}
        self._traffic = False
        self._peaks = True

    def before(self, func: Any, args: tuple, kwargs: dict) -> None:
        """Note an operator's inputs. ``torch.tensor`` makes its storage unseen and lifts it: that is new."""
        new = "lift_fresh" in func._schema.name
        for tensor in _tensors((*args, *kwargs.values())):
            self._note(tensor, self._made if new else self._older)

    def after(self, out: Any) -> None:
        """Note an operator's outputs, and count."""
        for tensor in _tensors((out,)):
            self._note(tensor, self._made)
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
        return sum(storage.nbytes() for storage in self.live())

    def live(self) -> Iterator[torch.UntypedStorage]:
        """The storages alive now, one by one; whoever keeps one keeps it alive."""
        for key, reference in list(self._made.items()):
            storage = torch.UntypedStorage._new_with_weak_ptr(reference.cdata)
            if storage is None:
                del self._made[key]
            else:
                yield storage

    def stop_peak(self) -> None:
        """Note no more peaks until they are restarted: where nobody asks for them, they only cost time."""
        self._peaks = False

    def restart_peak(self) -> None:
        """Count the peak from now on."""
        self._peaks = True
        self.peak_bytes = self.live_bytes()

    def _note(self, tensor: torch.Tensor, where: dict[int, StorageWeakRef]) -> None:
        if tensor.layout is not torch.strided or tensor.device.type != "cpu":
            return
        reference = StorageWeakRef(tensor.untyped_storage())
        if reference.cdata not in self._made and reference.cdata not in self._older:
            where[reference.cdata] = reference


def _tensors(values: Any):
    for value in values:
        if is_traceable_wrapper_subclass(value):
            # A DTensor or the like has no memory of its own; what it wraps has.
            yield from _tensors([getattr(value, name) for name in value.__tensor_flatten__()[0]])
        elif isinstance(value, torch.Tensor):
            yield value
        elif isinstance(value, (list, tuple)):
            yield from _tensors(value)
