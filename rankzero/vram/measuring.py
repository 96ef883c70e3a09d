"""The bytes of a training step of the real model, measured on real tensors on this machine."""

from __future__ import annotations

from typing import Any

from rankzero.vram.run import Run


def measure(model: Any, run: Run) -> int:
    """The most bytes of tensors alive at once in two real training steps on the CPU, weights included.

    The same step as :func:`rankzero.vram.trace` counts, on tensors that are there; for small models only.

    Args:
        model: as in ``trace``.
        run: the run; one process.

    Raises:
        ValueError: the run cannot be run on one process (which field, and why), or the model cannot be built.
    """
    import torch

    from rankzero.vram.meter import Meter
    from rankzero.vram.workload import Workload

    meter = Meter(values=True)
    with torch.random.fork_rng([]), meter:
        torch.manual_seed(0)
        work = Workload(model, run, fake=False)
        meter.declare(work.module.parameters(), "parameters")
        meter.peaks.clear()
        for _ in range(2):
            for _ in range(min(run.accumulation, 2)):
                work.forward().backward()
            work.step()
    return max(meter.peaks.values())
