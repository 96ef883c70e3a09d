"""Lesson 05 in the ranks: small models, and how an answer is driven. Shipped there by value."""

from __future__ import annotations

import contextlib
from types import SimpleNamespace
from typing import Any

import torch
from torch import Tensor, nn

from autograder.exercises.common import bring_home, pause
from rankzero.observe.recorder import current

# -- models ---------------------------------------------------------------------------------------------------


class Layers(nn.Module):
    """Linear layers one after the other; those named in ``unused`` are made, but never run."""

    def __init__(self, width: int, count: int = 4, unused: tuple[int, ...] = (), frozen: tuple[int, ...] = ()):
        super().__init__()
        self.layers = nn.ModuleList(nn.Linear(width, width) for _ in range(count))
        self.unused = unused
        for place in frozen:
            self.layers[place].requires_grad_(False)

    def forward(self, x: Tensor) -> Tensor:
        for place, layer in enumerate(self.layers):
            if place not in self.unused:
                x = torch.tanh(layer(x))
        return x


class Branches(nn.Module):
    """Two branches of the same shape. The sign of the batch says which one it takes."""

    def __init__(self, width: int):
        super().__init__()
        self.first, self.last = nn.Linear(width, width), nn.Linear(width, width)
        self.left, self.right = nn.Linear(width, width), nn.Linear(width, width)

    def forward(self, x: Tensor) -> Tensor:
        branch = self.left if x.detach().sum() > 0 else self.right
        return self.last(torch.tanh(branch(torch.tanh(self.first(x)))))


class Tied(nn.Module):
    """One weight under two names, used twice."""

    def __init__(self, width: int):
        super().__init__()
        self.there, self.middle = nn.Linear(width, width), nn.Linear(width, width)
        self.back = nn.Linear(width, width, bias=False)
        self.back.weight = self.there.weight

    def forward(self, x: Tensor) -> Tensor:
        return self.back(torch.tanh(self.middle(torch.tanh(self.there(x)))))


class Mixed(nn.Module):
    """Layers of three dtypes."""

    def __init__(self, width: int):
        super().__init__()
        dtypes = (torch.float64, torch.float32, torch.bfloat16, torch.float32, torch.float64)
        self.layers = nn.ModuleList(nn.Linear(width, width).to(dtype) for dtype in dtypes)

    def forward(self, x: Tensor) -> Tensor:
        for layer in self.layers:
            x = torch.tanh(layer(x.to(layer.weight.dtype)))
        return x


class Buffers(nn.Module):
    """Buffers of several kinds, one of which no state dict has, and a frozen parameter."""

    def __init__(self, width: int):
        super().__init__()
        self.layer = nn.Linear(width, width)
        self.scale = nn.Parameter(torch.ones(width), requires_grad=False)
        self.register_buffer("shift", torch.ones(width))
        self.register_buffer("secret", torch.ones(width), persistent=False)
        self.register_buffer("count", torch.ones((), dtype=torch.int64))
        self.register_buffer("none", None)

    def forward(self, x: Tensor) -> Tensor:
        return self.layer(x) * self.scale + self.shift + self.secret * self.count


class Gain(nn.Module):
    """Takes a keyword, and returns more than a tensor."""

    def __init__(self, width: int):
        super().__init__()
        self.up, self.down = nn.Linear(width, width), nn.Linear(width, width)

    def forward(self, x: Tensor, *, gain: float = 1.0) -> tuple[Tensor, dict[str, float]]:
        return self.down(torch.tanh(gain * self.up(x))), {"gain": gain}


def make_model(spec: tuple, seed: int) -> nn.Module:
    """A model from its description, with parameters and buffers drawn from ``seed``."""
    kind, width, *more = spec
    makers = {
        "layers": lambda: Layers(width),
        "many layers": lambda: Layers(width, 6),
        "idle": lambda: Layers(width, 5, unused=(1, 4)),
        "frozen": lambda: Layers(width, 4, frozen=(0, 2)),
        "branches": lambda: Branches(width),
        "tied": lambda: Tied(width),
        "mixed": lambda: Mixed(width),
        "buffers": lambda: Buffers(width),
        "gain": lambda: Gain(width),
    }
    model = makers[kind]()
    if kind != "mixed":
        model = model.to(getattr(torch, more[0]) if more else torch.float64)
    generator = torch.Generator().manual_seed(seed)
    with torch.no_grad():
        for tensor in (*model.parameters(), *model.buffers()):
            drawn = torch.randn(tensor.shape, generator=generator, dtype=torch.float64)
            tensor.copy_(drawn * width**-0.5 if tensor.is_floating_point() else (drawn.abs() * 20).round() + 2)
    return model


def loss_of(model: nn.Module, batch: tuple[Tensor, Tensor], parts: int, keywords: dict[str, Any]) -> tuple[Any, Tensor]:
    """What the model makes of a micro-batch, and that one's share of the loss."""
    out = model(batch[0], **keywords)
    first = out[0] if isinstance(out, tuple) else out
    return out, nn.functional.mse_loss(first, batch[1].to(first.dtype)) / parts


def state_of(model: nn.Module) -> dict[str, Tensor]:
    """All parameters and buffers by name, in memory of their own; buffers that no state dict has are there, too."""
    return {name: bring_home(tensor) for name, tensor in (*model.named_parameters(), *model.named_buffers())}


# -- drives ---------------------------------------------------------------------------------------------------


def drive_broadcast_state(answers: SimpleNamespace, inputs: dict[str, Any]) -> dict[str, Any]:
    """Give the ranks different models, and see what they hold after it, also through references from before."""
    model = make_model(inputs["spec"], inputs["seed"])
    held = dict((*model.named_parameters(), *model.named_buffers()))
    trains = {name: parameter.requires_grad for name, parameter in model.named_parameters()}
    pause(inputs)
    answers.broadcast_state(model)
    through = {name: bring_home(tensor) for name, tensor in held.items()}
    kept = trains == {name: parameter.requires_grad for name, parameter in model.named_parameters()}
    return {"state": state_of(model), "through": through, "kept": kept}


def drive_average(answers: SimpleNamespace, inputs: dict[str, Any]) -> dict[str, Any]:
    """Give a model's parameters their gradients, average, and see gradients and weights."""
    model = nn.Module()
    for number, weight in enumerate(inputs["weights"]):
        parameter = nn.Parameter(weight.clone(), requires_grad=number not in inputs["frozen"])
        model.register_parameter(f"p{number}", parameter)
    if inputs["tied"]:
        model.inner = nn.Module()
        model.inner.again = model.p0
    for parameter, gradient in zip(model.parameters(), inputs["gradients"], strict=True):
        parameter.grad = None if gradient is None else gradient.clone()
    pause(inputs)
    answers.average_gradients(model)
    after = list(model.parameters())
    return {"gradients": [bring_home(p.grad) for p in after], "weights": [bring_home(p) for p in after]}


def drive_hand_ddp(answers: SimpleNamespace, inputs: dict[str, Any]) -> dict[str, Any]:
    """Train; per step the gradients after ``finish()``, which calls it took, and how many had been made as each
    gradient became ready. The hooks that look are registered before HandDDP's own."""
    model = make_model(inputs["spec"], inputs["seed"])
    parameters = list(model.parameters())
    trained = [parameter for parameter in parameters if parameter.requires_grad]
    ready: list[int] = []
    for parameter in trained:
        parameter.register_post_accumulate_grad_hook(lambda _: ready.append(current().calls))
    ddp = answers.HandDDP(model, **inputs["options"])
    seen: dict[str, Any] = {"start": state_of(model), "steps": [], "out": None}
    for micro_batches in inputs["steps"]:
        _clear(trained, inputs["to_none"])
        weights = [bring_home(parameter) for parameter in parameters]
        backwards = []
        for batch, mode in zip(micro_batches, inputs["modes"], strict=True):
            with ddp.no_sync() if mode in ("inside", "forward inside") else contextlib.nullcontext():
                out, loss = loss_of(ddp, batch, len(micro_batches), inputs["keywords"])
                if mode == "inside":
                    backwards.append(_backward(loss, ready))
            if mode in ("sync", "forward inside"):
                pause(inputs)
                backwards.append(_backward(loss, ready))
            elif mode == "backward inside":
                with ddp.no_sync():
                    backwards.append(_backward(loss, ready))
        before = current().calls
        ddp.finish()
        step = {"gradients": [bring_home(parameter.grad) for parameter in parameters], "backwards": backwards}
        moved = [not torch.equal(one, other) for one, other in zip(weights, parameters, strict=True)]
        seen["steps"].append({**step, "finish": (before, current().calls), "moved": any(moved)})
        if seen["out"] is None:
            whole = out if isinstance(out, tuple) else (out,)
            seen["out"] = [bring_home(part) for part in whole]
        _descend(trained, inputs["lr"])
    seen["end"] = [bring_home(parameter) for parameter in parameters]
    return seen


def _backward(loss: Tensor, ready: list[int]) -> dict[str, Any]:
    """Backward, with the number of calls before it, after it, and as each gradient became ready."""
    ready.clear()
    before = current().calls
    loss.backward()
    return {"calls": (before, current().calls), "ready": list(ready)}


# An optimizer of two lines: importing torch.optim takes longer than the rest of a case.


def _clear(parameters: list[nn.Parameter], to_none: bool) -> None:
    for parameter in parameters:
        if to_none:
            parameter.grad = None
        elif parameter.grad is not None:
            parameter.grad.zero_()


@torch.no_grad()
def _descend(parameters: list[nn.Parameter], lr: float) -> None:
    for parameter in parameters:
        if parameter.grad is not None:
            parameter -= lr * parameter.grad
