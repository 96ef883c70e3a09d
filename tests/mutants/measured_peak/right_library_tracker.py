"""The library's own meter of a watched rank, used directly."""

from torch.utils._python_dispatch import TorchDispatchMode

from rankzero.observe.memory import MemoryMeter


def measured_peak(step):
    meter = MemoryMeter()

    class Mode(TorchDispatchMode):
        def __torch_dispatch__(self, func, types, args=(), kwargs=None):
            meter.before(func, args, kwargs or {})
            out = func(*args, **(kwargs or {}))
            meter.after(out)
            return out

    with Mode():
        step()
    return meter.peak_bytes
