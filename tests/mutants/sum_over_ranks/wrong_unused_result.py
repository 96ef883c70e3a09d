"""Reduces a tensor and returns the value that it had before.

says: nothing was exchanged
"""

import torch
import torch.distributed as dist


def sum_over_ranks(value):
    total = torch.tensor(value, dtype=torch.float64)
    dist.all_reduce(total)
    return float(value)
