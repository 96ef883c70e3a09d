"""A training step as people write it: the real model, its inputs, its loss and its optimizer, from a ``Run``."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from typing import Any

import torch
from torch import nn

from rankzero.vram.real_models import build
from rankzero.vram.run import Run
from rankzero.vram.without_memory import quiet


class Workload:
    """One process's training step, on whatever tensors the modes around it make.

    Attributes:
        module: the model, with adapters and quantized weights where the run has them.
        trained: the parameters that train.
        optimizers: what steps at the end; one per parameter where the optimizer steps in backward; none for "none".
    """

    def __init__(self, model: Any, run: Run, fake: bool) -> None:
        refuse(run)
        self.run = run
        self.masters: list[tuple[nn.Parameter, nn.Parameter]] = []
        self.optimizers: list[torch.optim.Optimizer] = []
        self._kept: Any = None
        with quiet():
            self.module, self.inputs = build(model, run, fake)
        self.module.train()
        self.trained = [parameter for parameter in self.module.parameters() if parameter.requires_grad]
        if not self.trained:
            raise ValueError("lora_targets: none of them is in this model, so nothing would train")
        self._make_optimizers()

    def weights(self) -> Iterator[torch.Tensor]:
        """The parameters, and the scales of quantized ones."""
        yield from self.module.parameters()
        for module in self.module.modules():
            yield from getattr(module, "nf4_scales", {}).values()

    def forward(self) -> torch.Tensor:
        """The loss of one micro-batch.

        What else the model returns is let go, as transformers' Trainer does, unless the run's loss is ``hf_kept``.
        """
        self._kept = None
        with autocast(self.run):
            out = self.module(**self.inputs) if isinstance(self.inputs, dict) else self.module(*self.inputs)
        if self.run.loss == "hf_kept":
            self._kept = out
        loss = getattr(out, "loss", None)
        if loss is None:
            loss = out[0] if isinstance(out, (tuple, list)) else out
        if isinstance(loss, dict):
            loss = loss["loss"]
        return loss if loss.dim() == 0 else loss.float().mean()

    def step(self) -> None:
        """The optimizer step, and no gradient after it."""
        if not self.run.optimizer_in_backward:
            for master, parameter in self.masters:
                master.grad = parameter.grad.float()
            for optimizer in self.optimizers:
                optimizer.step()
            for master, parameter in self.masters:
                parameter.data.copy_(master.data)
                master.grad = None
        for parameter in self.trained:
            parameter.grad = None

    def optimizer_states(self) -> Iterator[torch.Tensor]:
        """The optimizers' tensors, the fp32 master copies included."""
        for master, _ in self.masters:
            yield master
        for optimizer in self.optimizers:
            for state in optimizer.state.values():
                yield from (value for value in state.values() if isinstance(value, torch.Tensor))

    def _make_optimizers(self) -> None:
        run = self.run
        if run.optimizer == "none":
            return
        targets: list[nn.Parameter] = self.trained
        if run.precision == "bf16_mixed" and run.method == "full":
            self.masters = [(nn.Parameter(each.detach().float()), each) for each in self.trained]
            targets = [master for master, _ in self.masters]
        if not run.optimizer_in_backward:
            self.optimizers = [make_optimizer(targets, run)]
            return
        for position, parameter in enumerate(self.trained):
            target = targets[position]
            optimizer = make_optimizer([target], run)
            self.optimizers.append(optimizer)
            parameter.register_post_accumulate_grad_hook(_stepper(optimizer, target))


def _stepper(optimizer: torch.optim.Optimizer, target: nn.Parameter) -> Callable[[torch.Tensor], None]:
    def step(parameter: torch.Tensor) -> None:
        if target is not parameter:
            target.grad = parameter.grad.float()
        optimizer.step()
        if target is not parameter:
            parameter.data.copy_(target.data)
            target.grad = None
        parameter.grad = None

    return step


def make_optimizer(parameters: list[nn.Parameter], run: Run) -> torch.optim.Optimizer:
    """The optimizer that the run names. foreach is asked for by name: torch takes it by itself on CUDA only."""
    rate = 1e-4
    if run.optimizer == "adamw":
        return torch.optim.AdamW(parameters, rate, foreach=True)
    if run.optimizer == "adamw_fused":
        return torch.optim.AdamW(parameters, rate, fused=True)
    if run.optimizer == "adafactor":
        return torch.optim.Adafactor(parameters, rate, foreach=True)
    momentum = 0.9 if run.optimizer == "sgd_momentum" else 0.0
    return torch.optim.SGD(parameters, rate, momentum=momentum, foreach=True)


def autocast(run: Run) -> contextlib.AbstractContextManager:
    """The autocast that the forward runs under, or nothing."""
    if run.autocast or run.precision == "autocast":
        return torch.autocast("cpu", dtype=torch.bfloat16)
    return contextlib.nullcontext()


def refuse(run: Run) -> None:
    """Runs that cannot be run in one process, or that need kernels that are not here.

    Raises:
        ValueError: says which field and why.
    """
    if run.gpus > 1:
        raise ValueError(
            f"gpus: a trace is of one GPU; what {run.gpus} of them share and send has closed formulas only"
        )
    if run.optimizer in ("adamw8bit", "adamw4bit", "paged_adamw", "paged_adamw8bit"):
        raise ValueError(
            f"optimizer: {run.optimizer!r} is not traced; adamw, adamw_fused, sgd, sgd_momentum, adafactor, none are"
        )
    if run.checkpointing not in ("none", "full"):
        raise ValueError(f"checkpointing: {run.checkpointing!r} is not traced; none and full are")
    if run.loss not in ("hf", "hf_kept"):
        raise ValueError(f"loss: {run.loss!r} is not traced; 'hf', the model's own loss, and 'hf_kept' are")
    if run.stack != "transformers":
        raise ValueError(f"stack: {run.stack!r} is not traced; 'transformers' is")
    if run.experts != "grouped":
        raise ValueError(f"experts: {run.experts!r} are not traced; 'grouped' ones are")
    if run.quantized_inputs != "none":
        raise ValueError("quantized_inputs: today's bitsandbytes keeps none, so only 'none' is traced")
    if run.quantize_head:
        raise ValueError("quantize_head: transformers leaves the LM head as it is, so only False is traced")
    if run.kernels != "eager":
        raise ValueError(f"kernels: {run.kernels!r} are not traced; 'eager' ones are")
    if run.offload != "none":
        raise ValueError(f"offload: {run.offload!r} is not traced; 'none' is")
    if run.method == "qlora" and run.quantization == "int8":
        raise ValueError("quantization: 'int8' is not traced; nf4 and nf4_single are")
    if run.states == "fp32" and run.precision == "bf16_pure":
        raise ValueError("states: torch's optimizers keep them in the weights' dtype, so 'fp32' is not traced here")
