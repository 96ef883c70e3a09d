"""The bytes of a training step of the real model, counted on tensors that have no memory."""

from __future__ import annotations

import contextlib
import gc
from dataclasses import dataclass, field
from typing import Any

from rankzero.vram.run import Run


@dataclass(frozen=True)
class Trace:
    """What a step takes, in bytes of live tensors.

    Attributes:
        peak_bytes: the most that is alive at once; what ``torch.cuda.max_memory_allocated`` would say.
        peak_moment: ``forward end``, ``backward`` or ``optimizer step``.
        peak_operator: the operator whose output made the peak.
        phases: bytes at ``load``, the peaks of ``forward end``, ``backward`` and ``optimizer step``, and what is
            alive after them (``after forward``, ``after backward``, ``at rest``).
        breakdown: the peak by category; adds up to ``peak_bytes``.
        breakdowns: the same for the three moments.
        parameters: how many parameters there are; ``trained`` of them train.
    """

    peak_bytes: int
    peak_moment: str
    peak_operator: str
    phases: dict[str, int]
    breakdown: dict[str, int]
    breakdowns: dict[str, dict[str, int]] = field(repr=False)
    parameters: int = 0
    trained: int = 0


def trace(model: Any, run: Run, kernels: str = "cuda") -> Trace:
    """Runs two training steps of the model on tensors without memory, and counts in the second.

    The second is the first in which optimizer states are there from the start, as in every later one.

    Args:
        model: a built-in name, a config (the dict, the file, the folder), a :class:`Model`, or a callable that
            returns ``(module, inputs)``, inputs a dict by name or a tuple. The module returns its loss, or an object
            with ``loss``, or a tensor whose mean is the loss.
        run: the run; one GPU.
        kernels: ``cuda`` counts what CUDA's kernels save and allocate; ``cpu`` what this machine's do, which is what
            :func:`rankzero.vram.measure` sees.

    Raises:
        ValueError: the run cannot be traced (which field, and why), or the model cannot be built.
    """
    import torch
    from torch._subclasses.fake_tensor import FakeTensorMode

    from rankzero.vram import meter as meters
    from rankzero.vram.cuda_like import cuda_like
    from rankzero.vram.without_memory import values_unread
    from rankzero.vram.workload import Workload, refuse

    if kernels not in ("cuda", "cpu"):
        raise ValueError(f"kernels: {kernels!r} is not known; allowed are cuda, cpu")
    refuse(run)
    meter = meters.Meter()
    like = cuda_like() if kernels == "cuda" else contextlib.nullcontext()
    with FakeTensorMode(allow_non_fake_inputs=True), meter, like, values_unread(), torch.random.fork_rng([]):
        work = Workload(model, run, fake=True)
        meter.declare(work.weights(), meters.PARAMETERS)
        meter.declare(work.module.buffers(), meters.BUFFERS)
        for parameter in work.trained:
            parameter.register_post_accumulate_grad_hook(lambda each: meter.declare([each.grad], meters.GRADIENTS))
        gc.collect()
        phases = {"load": sum(meter.count().values())}
        for _ in range(2):
            meter.peaks.clear()
            _step(work, meter, phases)
            meter.declare(work.optimizer_states(), meters.STATES)
        counted = (
            sum(each.numel() for each in work.module.parameters()),
            sum(each.numel() for each in work.trained),
        )
        del work
    moment = max((meters.FORWARD, meters.BACKWARD, meters.STEP), key=lambda each: meter.peaks[each])
    phases.update({each: meter.peaks[each] for each in (meters.FORWARD, meters.BACKWARD, meters.STEP)})
    return Trace(
        peak_bytes=meter.peaks[moment],
        peak_moment=moment,
        peak_operator=meter.operators[moment],
        phases=phases,
        breakdown=meter.breakdowns[moment],
        breakdowns={each: meter.breakdowns[each] for each in (meters.FORWARD, meters.BACKWARD, meters.STEP)},
        parameters=counted[0],
        trained=counted[1],
    )


def _step(work: Any, meter: Any, phases: dict[str, int]) -> None:
    """One training step. Of an accumulation, two micro-batches are enough: all but the first are alike."""
    from rankzero.vram import meter as meters

    for _ in range(min(work.run.accumulation, 2)):
        meter.moment = meters.FORWARD
        loss = work.forward()
        phases["after forward"] = sum(meter.count().values())
        meter.moment = meters.BACKWARD
        loss.backward()
        del loss
    phases["after backward"] = sum(meter.count().values())
    meter.moment = meters.STEP
    work.step()
    phases["at rest"] = sum(meter.count().values())
    meter.peaks.setdefault(meters.STEP, phases["at rest"])
    meter.breakdowns.setdefault(meters.STEP, meter.count())
    meter.operators.setdefault(meters.STEP, "")
