"""Adds up everything that is ever made.

says: alive at once
"""

import torch
from torch.utils._python_dispatch import TorchDispatchMode

import rankzero


def measured_peak(step):
    total = 0

    class Add(TorchDispatchMode):
        def __torch_dispatch__(self, func, types, args=(), kwargs=None):
            nonlocal total
            before = rankzero.live_bytes()
            out = func(*args, **(kwargs or {}))
            total += max(0, rankzero.live_bytes() - before)
            return out

    with Add():
        step()
    return total
