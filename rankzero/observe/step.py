"""A training step's memory, operator by operator: what is alive, and what it is for."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor, nn
from torch.utils._python_dispatch import TorchDispatchMode

from rankzero.observe.memory import Storages, cpu_storage, tensors_in

#: What a live tensor can be for, in the order in which a picture stacks them.
PURPOSES = ("weights", "optimizer states", "gradients", "activations", "other")
#: Moments of a step, in their order.
MOMENTS = ("forward", "backward", "optimizer step")


@dataclass(frozen=True)
class Sample:
    """What was alive right after one operator: bytes by purpose."""

    operator: str
    moment: str
    bytes: dict[str, int]

    @property
    def total(self) -> int:
        return sum(self.bytes.values())


@dataclass
class StepMemory:
    """The live bytes of one training step on CPU.

    Attributes:
        samples: one for each operator, in order.
        result: what the step returned.
    """

    samples: list[Sample] = field(default_factory=list)
    result: Any = None

    @property
    def peak(self) -> Sample:
        """The sample in which most bytes were alive."""
        return max(self.samples, key=lambda sample: sample.total)

    def peak_of(self, moment: str) -> Sample:
        """The largest sample of "forward", "backward" or "optimizer step"."""
        return max((sample for sample in self.samples if sample.moment == moment), key=lambda sample: sample.total)

    def stack(self):
        """A picture: the purposes stacked, over the operators of the step."""
        from rankzero.draw import memory_stack

        return memory_stack(self)


def watch_step(step: Callable[[], Any], model: nn.Module, optimizer: torch.optim.Optimizer | None = None) -> StepMemory:
    """Run a training step on CPU and record after each operator what is alive and what it is for.

    The model's weights, gradients and optimizer states count from the start; of everything else, what the step
    makes. *Activations* are the storages that autograd keeps for backward, and what a checkpoint makes when it runs
    a block again; *other* are all that fit nowhere else: temporaries, and gradients on their way.

    Args:
        step: called once; it may hold a forward, a backward and an optimizer step.
        model: whose parameters and buffers are the weights.
        optimizer: whose states are recorded; its step tells the last moment apart from backward.
    """
    watcher = _Watcher(model, optimizer)
    handles = []
    if optimizer is not None:
        handles = [
            optimizer.register_step_pre_hook(lambda *_: watcher.stepping(True)),
            optimizer.register_step_post_hook(lambda *_: watcher.stepping(False)),
        ]
    try:
        with torch.autograd.graph.saved_tensors_hooks(watcher.keep, lambda tensor: tensor), watcher:
            watcher.seen.result = step()
    finally:
        for handle in handles:
            handle.remove()
    return watcher.seen


class _Watcher(TorchDispatchMode):
    def __init__(self, model: nn.Module, optimizer: torch.optim.Optimizer | None):
        super().__init__()
        self.seen = StepMemory()
        self._optimizer = optimizer
        self._parameters = list(model.parameters())
        self._weights = _keys([*self._parameters, *model.buffers()])
        self._kept = Storages()
        self._alive = Storages()
        self._stepping = False
        for tensor in (*self._parameters, *model.buffers(), *self._gradients(), *self._states()):
            self._alive.add(tensor)

    def stepping(self, now: bool) -> None:
        self._stepping = now

    def keep(self, tensor: Tensor) -> Tensor:
        """Autograd keeps a tensor."""
        self._kept.add(tensor)
        return tensor

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        out = func(*args, **(kwargs or {}))
        again = torch.is_grad_enabled() and torch._C._current_graph_task_id() != -1  # a checkpointed block, once more
        for tensor in tensors_in((out,)):
            self._alive.add(tensor)
            if again:
                self._kept.add(tensor)
        if func.namespace != "profiler":  # marks around an optimizer's step, not work
            self._sample(func._schema.name.split("::")[-1])
        return out

    def _sample(self, operator: str) -> None:
        in_backward = torch._C._current_graph_task_id() != -1
        moment = "optimizer step" if self._stepping else "backward" if in_backward else "forward"
        gradients, states = _keys(self._gradients()), _keys(self._states())
        bytes_of = dict.fromkeys(PURPOSES, 0)
        for key, size in self._alive.sizes().items():
            if key in self._weights:
                purpose = "weights"
            elif key in states:
                purpose = "optimizer states"
            elif key in gradients:
                purpose = "gradients"
            else:
                purpose = "activations" if key in self._kept else "other"
            bytes_of[purpose] += size
        self.seen.samples.append(Sample(operator, moment, bytes_of))

    def _gradients(self) -> list[Tensor]:
        return [weight.grad for weight in self._parameters if weight.grad is not None]

    def _states(self) -> list[Tensor]:
        states = self._optimizer.state.values() if self._optimizer is not None else ()
        return [value for state in states for value in state.values() if isinstance(value, Tensor)]


def _keys(tensors: list[Tensor]) -> set[int]:
    storages = (cpu_storage(tensor) for tensor in tensors)
    return {storage._cdata for storage in storages if storage is not None}
