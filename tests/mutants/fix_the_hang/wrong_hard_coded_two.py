"""Divided by 2, whatever the world size.

says: divided by 2
"""

import torch.distributed as dist


def rank_zero_reports(value):
    total = value.clone()
    dist.all_reduce(total)
    return total / 2 if dist.get_rank() == 0 else None
