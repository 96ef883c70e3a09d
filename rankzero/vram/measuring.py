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
    from torch.utils._python_dispatch import TorchDispatchMode

    from rankzero.observe.memory import MemoryMeter
    from rankzero.vram.workload import Workload

    meter = MemoryMeter()

    class Watching(TorchDispatchMode):
        def __torch_dispatch__(self, func: Any, types: Any, args: tuple = (), kwargs: dict | None = None) -> Any:
            meter.before(func, args, kwargs or {})
            out = func(*args, **(kwargs or {}))
            meter.after(out)
            return out

    with torch.random.fork_rng([]), Watching():
        torch.manual_seed(0)
        work = Workload(model, run, fake=False)
        meter.peak_bytes = 0
        for _ in range(2):
            for _ in range(min(run.accumulation, 2)):
                work.forward().backward()
            work.step()
    return meter.peak_bytes
