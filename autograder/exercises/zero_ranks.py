"""Lesson 06 in the ranks: small models, and how an answer is driven. Shipped there by value."""

from __future__ import annotations

import gc
import time
import weakref
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.utils.checkpoint import checkpoint

from autograder.exercises.common import as_number, bring_home
from rankzero.observe.moment import moment
from rankzero.observe.recorder import current

# -- models ---------------------------------------------------------------------------------------------------


class Checkpointed(nn.Module):
    """Two layers whose activations are computed again in backward."""

    def __init__(self, width: int):
        super().__init__()
        self.up, self.down = nn.Linear(width, width), nn.Linear(width, width)

    def body(self, x: Tensor) -> Tensor:
        return self.down(torch.tanh(self.up(x)))

    def forward(self, x: Tensor) -> Tensor:
        return x + checkpoint(self.body, x, use_reentrant=False)


class Scaled(nn.Module):
    """A weight for each feature, and a buffer."""

    def __init__(self, width: int):
        super().__init__()
        self.scale = nn.Parameter(torch.ones(width))
        self.register_buffer("shift", torch.linspace(-1, 1, width))

    def forward(self, x: Tensor) -> Tensor:
        return x * self.scale + self.shift


class Sometimes(nn.Module):
    """A layer that only some batches pass, so that some ranks have no gradient for it."""

    def __init__(self, width: int):
        super().__init__()
        self.extra = nn.Linear(width, width)

    def forward(self, x: Tensor) -> Tensor:
        return x + self.extra(x) if x.detach().sum() > 0 else x


class Idle(nn.Linear):
    """A layer with weights that nobody uses."""

    def __init__(self, width: int):
        super().__init__(width, width)
        self.unused = nn.Linear(width, 3)


class Tied(nn.Module):
    """One weight, used twice."""

    def __init__(self, width: int):
        super().__init__()
        self.there, self.back = nn.Linear(width, width, bias=False), nn.Linear(width, width, bias=False)
        self.back.weight = self.there.weight

    def forward(self, x: Tensor) -> Tensor:
        return self.back(torch.tanh(self.there(x)))


def make_blocks(spec: list[tuple], seed: int, dtype: torch.dtype) -> nn.Sequential:
    """A model from its description, with weights drawn from ``seed``."""
    makers = {
        "linear": nn.Linear,
        "embedding": nn.Embedding,
        "tanh": nn.Tanh,
        "relu in place": lambda: nn.ReLU(inplace=True),
        "checkpointed": Checkpointed,
        "scaled": Scaled,
        "sometimes": Sometimes,
        "idle": Idle,
        "tied": Tied,
        "layer": lambda width: nn.Sequential(nn.Linear(width, width), nn.Tanh()),
    }
    blocks = nn.Sequential(*(makers[kind](*sizes) for kind, *sizes in spec)).to(dtype)
    generator = torch.Generator().manual_seed(seed)
    with torch.no_grad():
        for parameter in blocks.parameters():
            size = parameter.shape[-1] ** -0.5
            parameter.copy_(size * torch.randn(parameter.shape, generator=generator, dtype=torch.float64))
    return blocks


def loss_of(model: nn.Module, batch: tuple[Tensor, Tensor], parts: int) -> tuple[Tensor, Tensor]:
    """What the model makes of a micro-batch, and that one's share of the loss."""
    out = model(batch[0])
    return out, nn.functional.mse_loss(out, batch[1]) / parts


# -- what a rank holds ----------------------------------------------------------------------------------------


def held_bytes(apart: list[Tensor], known: list[Tensor]) -> int:
    """Live bytes, without the storages of ``apart`` and without copies of values that stand in ``known``.

    So weights in a second, flat buffer are no optimizer state. Storages below 64 bytes (counters) are left out.
    """
    values = torch.cat([known[0].new_zeros(1), *(tensor.detach().reshape(-1) for tensor in known)])
    places = {tensor.untyped_storage().data_ptr() for tensor in (*apart, values)}
    total = 0
    for storage in list(current().memory.live()):
        if storage.nbytes() < 64 or storage.data_ptr() in places:
            continue
        whole = storage.nbytes() // values.element_size()
        seen = torch.empty(0, dtype=values.dtype).set_(storage, 0, (whole,))
        if not torch.isin(seen, values).all():
            total += storage.nbytes()
    return total


def settled(read: Callable[[], int], most: int) -> int:
    """What ``read()`` gives, once it is at most ``most``, or after half a second: gloo lets go of buffers late."""
    until = time.monotonic() + 0.5
    while (value := read()) > most and time.monotonic() < until:
        time.sleep(0.005)
    return value


def group_of(inputs: dict[str, Any]) -> dict[str, Any]:
    """The process group to hand on, where the case is about groups: every rank takes part in making all of them."""
    if not inputs.get("members"):
        return {}
    groups = [dist.new_group(members) for members in inputs["members"]]
    mine = next(place for place, members in enumerate(inputs["members"]) if dist.get_rank() in members)
    return {"group": groups[mine]}


# -- drives ---------------------------------------------------------------------------------------------------


def drive_zero1(answers: SimpleNamespace, inputs: dict[str, Any]) -> dict[str, Any]:
    """Train parameters on given gradients; after each step, what they are and which calls it took."""
    current().memory.stop_peak()
    parameters = [nn.Parameter(tensor.clone()) for tensor in inputs["parameters"]]
    given: Any = iter(parameters) if inputs["groups"] is None else []
    for settings in inputs["groups"] or []:
        chosen = [parameters[which] for which in settings["which"]]
        given.append({"params": chosen, **{name: value for name, value in settings.items() if name != "which"}})
    optimizer = answers.ShardedAdamW(given, **inputs["options"], **group_of(inputs))
    schedule = None
    is_optimizer = isinstance(optimizer, torch.optim.Optimizer)
    if inputs["lr_factors"] is not None and is_optimizer:
        schedule = torch.optim.lr_scheduler.LambdaLR(optimizer, inputs["lr_factors"].__getitem__)
    after, calls = [], []
    for gradients in inputs["gradients"]:
        for parameter, gradient in zip(parameters, gradients, strict=True):
            parameter.grad = None if gradient is None else gradient.clone()
        first = moment().calls
        optimizer.step()
        calls.append((first, moment().calls))
        if schedule is not None:
            schedule.step()
        after.append([bring_home(parameter) for parameter in parameters])
    gradients = [parameter.grad for parameter in parameters if parameter.grad is not None]
    apart = [*parameters, *gradients, *(tensor for step in after for tensor in step)]
    known = [*parameters, *gradients, *inputs["parameters"]]
    states = 0
    if inputs["most"]:
        states = settled(lambda: held_bytes(apart, known), inputs["most"])
    return {"after": after, "calls": calls, "states": states, "is_optimizer": is_optimizer}


def drive_zero2(answers: SimpleNamespace, inputs: dict[str, Any]) -> dict[str, Any]:
    """Train a model; per step the gradient shard and the weights, and what the last backward leaves behind."""
    current().memory.stop_peak()
    model = make_blocks(inputs["spec"], inputs["seed"], inputs["dtype"])
    start = [parameter.detach().clone() for parameter in model.parameters()]
    zero = answers.Zero2(model, **inputs["options"], **group_of(inputs))
    shards, weights, calls = [], [], []
    held = left = 0
    for number, micro_batches in enumerate(inputs["steps"]):
        for batch in micro_batches:
            _, loss = loss_of(model, batch, len(micro_batches))
            first = moment().calls
            zero.backward(loss)
            calls.append((first, moment().calls))
            del _, loss
        if inputs["most"] and number == len(inputs["steps"]) - 1:
            gc.collect()
            left = sum(parameter.grad is not None for parameter in model.parameters())
            record = [*shards, *(tensor for step in weights for tensor in step)]
            apart = [*start, *model.parameters(), *(tensor for tensor in record if isinstance(tensor, torch.Tensor))]
            known = [*start, *model.parameters()]
            held = settled(lambda: held_bytes(apart, known), inputs["most"])  # noqa: B023
        shards.append(bring_home(zero.gradient_shard()))
        if inputs["train"]:
            zero.step()
            zero.zero_grad()
        weights.append([bring_home(parameter) for parameter in model.parameters()])
    return {"shards": shards, "weights": weights, "calls": calls, "held": held, "left": left}


def drive_zero3(answers: SimpleNamespace, inputs: dict[str, Any]) -> dict[str, Any]:
    """Run or train blocks, as far as the case asks, and watch the memory where it asks for that."""
    blocks = make_blocks(inputs["spec"], inputs["seed"], inputs["dtype"])
    if inputs["do"] == "memory":
        return _memory_of_zero3(answers, inputs, blocks)
    current().memory.stop_peak()
    zero = answers.Zero3(blocks, **inputs["options"], **group_of(inputs))
    del blocks
    outputs, shards = [], []
    first = _state_dict(zero)
    for micro_batches in inputs["steps"]:
        for batch in micro_batches:
            out, loss = loss_of(zero, batch, len(micro_batches))
            outputs.append(bring_home(out))
            if inputs["do"] != "forward":
                zero.backward(loss)
        if inputs["do"] != "forward":
            shards.append(_listed(zero.gradient_shards()))
        if inputs["do"] == "train":
            zero.step()
            zero.zero_grad()
    last = _state_dict(zero) if inputs["do"] == "train" else None
    return {"outputs": outputs, "shards": shards, "first": first, "last": last}


def _memory_of_zero3(answers: SimpleNamespace, inputs: dict[str, Any], blocks: nn.Sequential) -> dict[str, Any]:
    begun: list[int] = []
    blocks[0].register_forward_pre_hook(lambda *_: begun.append(moment().live_bytes))
    parameters = [weakref.ref(parameter) for parameter in blocks.parameters()]
    zero = answers.Zero3(blocks, **inputs["options"])
    del blocks
    for ((x, y),) in inputs["steps"]:
        gc.collect()
        begun.clear()
        before = moment(restart_peak=True)
        out = zero(x)
        forward = moment(restart_peak=True)
        in_parameters = _bytes_in(parameters)
        loss = nn.functional.mse_loss(out, y)
        zero.backward(loss)
        backward = moment()
        del out, loss
        gc.collect()
        after = settled(lambda: moment().live_bytes, inputs["most"])
        left = _bytes_in(parameters)
        zero.step()
        zero.zero_grad()
        gc.collect()
        kept = settled(lambda: moment().live_bytes, inputs["most"])
    return {
        "before": before.live_bytes,
        "first_block": begun[0] if begun else None,
        "forward_peak": forward.peak_bytes,
        "after_forward": forward.live_bytes,
        "in_parameters": in_parameters,
        "backward_peak": backward.peak_bytes,
        "after_backward": after,
        "left_in_parameters": left,
        "kept": kept,
    }


def _bytes_in(parameters: list[weakref.ref]) -> int:
    """Bytes of the storages that the model's own parameters hold now."""
    storages = [tensor.untyped_storage() for one in parameters if (tensor := one()) is not None]
    return sum({storage.data_ptr(): storage.nbytes() for storage in storages}.values())


def _listed(shards: Any) -> Any:
    listed = isinstance(shards, (list, tuple))
    return [bring_home(shard) for shard in shards] if listed else type(shards).__name__


def _state_dict(zero: Any) -> Any:
    state = zero.full_state_dict()
    return {str(key): bring_home(value) for key, value in state.items()} if hasattr(state, "items") else state


def drive_clip(answers: SimpleNamespace, inputs: dict[str, Any]) -> list[dict[str, Any]]:
    """Clip several times; per call the norm, the shards after it, and which calls it took."""
    seen = []
    for shards in inputs["shards"]:
        mine = [shard.clone() for shard in shards]
        first = moment().calls
        norm = answers.clip_grad_norm_sharded(mine, inputs["max_norm"])
        seen.append({"norm": as_number(norm), "shards": mine, "calls": (first, moment().calls)})
    return seen
