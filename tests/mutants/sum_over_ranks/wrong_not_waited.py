"""Asynchronous, and never waited for.

says: nothing was exchanged | wait | missing | different results
"""

import torch
import torch.distributed as dist


def sum_over_ranks(value):
    total = torch.zeros(2_000_000, dtype=torch.float64)
    total[-1] = value
    dist.all_reduce(total, async_op=True)
    return total[-1].item()
