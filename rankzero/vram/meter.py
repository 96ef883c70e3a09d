"""Counts the bytes of tensors that are alive, by what they are, while a step runs on tensors without memory."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

import torch
from torch.multiprocessing.reductions import StorageWeakRef
from torch.utils._python_dispatch import TorchDispatchMode

PARAMETERS = "parameters"
BUFFERS = "buffers"
GRADIENTS = "gradients"
STATES = "optimizer states"
ACTIVATIONS = "activations"
TEMPORARIES = "temporaries"
CATEGORIES = (PARAMETERS, BUFFERS, GRADIENTS, STATES, ACTIVATIONS, TEMPORARIES)

#: The moments of a step: until the loss is there, until all gradients are there, until the weights are new.
FORWARD = "forward end"
BACKWARD = "backward"
STEP = "optimizer step"

#: operator name → bytes that its CUDA kernel allocates and frees within, given the operator's arguments.
Workspace = Callable[..., int]


class Meter(TorchDispatchMode):
    """Every operator's outputs are noted; what is alive is counted anew when it may be a new peak.

    The dispatch mode stands outside ``FakeTensorMode`` (enter it second), so that it can answer for operators that
    tensors without values cannot: ``item()`` is 1, True for truth values.

    Args:
        workspaces: what operators allocate and free within.
        values: whether the tensors are real and have values to be read.

    Attributes:
        moment: the name of the moment that the step is in; peaks are kept for each.
        peaks: moment → bytes of its peak.
        breakdowns: moment → category → bytes at its peak.
        operators: moment → the operator whose output made its peak.
    """

    def __init__(self, workspaces: dict[str, Workspace] | None = None, values: bool = False) -> None:
        super().__init__()
        self._values = values
        self.moment = "load"
        self.peaks: dict[str, int] = {}
        self.breakdowns: dict[str, dict[str, int]] = {}
        self.operators: dict[str, str] = {}
        self._workspaces = workspaces or {}
        self._live: dict[int, _Record] = {}
        self._bound = 0  # no less than what is alive: the last count and all that was made since

    def __torch_dispatch__(self, func: Any, types: Any, args: tuple = (), kwargs: dict | None = None) -> Any:
        kwargs = kwargs or {}
        name = func._schema.name.split("::")[-1]
        if name == "_local_scalar_dense" and not self._values:
            return _plausible(args[0])
        if name == "lift_fresh":  # torch.tensor makes its storage unseen and lifts it
            self._note(_tensors(args), TEMPORARIES)
        out = func(*args, **kwargs)
        self._note(_tensors((out,)), self._category())
        workspace = self._workspaces.get(name)
        self._mark(name, workspace(*args, **kwargs) if workspace else 0)
        return out

    def declare(self, tensors: Iterable[torch.Tensor], category: str) -> None:
        """Say what tensors are: parameters, gradients, and so on."""
        for tensor in _tensors(tensors):
            weak = StorageWeakRef(tensor.untyped_storage())
            record = self._live.get(weak.cdata)
            if record is None:
                self._live[weak.cdata] = _Record(weak, tensor.untyped_storage().nbytes(), category)
                self._bound += tensor.untyped_storage().nbytes()
            else:
                record.category = category

    def count(self) -> dict[str, int]:
        """The bytes that are alive now, by category."""
        totals = dict.fromkeys(CATEGORIES, 0)
        expired = torch.UntypedStorage._expired
        dead = []
        for key, record in self._live.items():
            if expired(key):
                dead.append(key)
            else:
                totals[record.category] += record.nbytes
        for key in dead:
            del self._live[key]
        self._bound = sum(totals.values())
        return totals

    def _category(self) -> str:
        """What forward makes is an activation, in recomputation too, where the graph is recorded; the rest passes."""
        recorded = torch.is_grad_enabled() and self.moment == BACKWARD
        return ACTIVATIONS if recorded or self.moment == FORWARD else TEMPORARIES

    def _note(self, tensors: Iterable[torch.Tensor], category: str) -> None:
        for tensor in tensors:
            storage = tensor.untyped_storage()
            weak = StorageWeakRef(storage)
            if weak.cdata not in self._live:
                self._live[weak.cdata] = _Record(weak, storage.nbytes(), category)
                self._bound += storage.nbytes()

    def _mark(self, operator: str, inside: int) -> None:
        """Count, unless the moment's peak cannot have been passed."""
        peak = self.peaks.get(self.moment, -1)
        if self._bound + inside <= peak:
            return
        totals = self.count()
        if self._bound + inside > peak:
            totals[TEMPORARIES] += inside
            self.peaks[self.moment] = self._bound + inside
            self.breakdowns[self.moment] = totals
            self.operators[self.moment] = operator


class _Record:
    """A storage that was alive when last counted. The weak reference keeps its address from being used again."""

    __slots__ = ("category", "nbytes", "weak")

    def __init__(self, weak: StorageWeakRef, nbytes: int, category: str) -> None:
        self.weak, self.nbytes, self.category = weak, nbytes, category


def _plausible(tensor: torch.Tensor) -> Any:
    if tensor.dtype is torch.bool:
        return True
    return 1.0 if tensor.is_floating_point() else 1


def _tensors(values: Any) -> Iterable[torch.Tensor]:
    for value in values:
        if isinstance(value, torch.Tensor):
            if value.layout is torch.strided:
                yield value
        elif isinstance(value, (list, tuple)):
            yield from _tensors(value)
        elif isinstance(value, dict):
            yield from _tensors(value.values())
