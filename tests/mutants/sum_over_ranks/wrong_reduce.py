"""Reduces to rank 0 only: the others keep something unfinished.

says: missing | different results | own value
"""

import torch
import torch.distributed as dist


def sum_over_ranks(value):
    total = torch.tensor(value, dtype=torch.float64)
    dist.reduce(total, 0)
    return total.item()
