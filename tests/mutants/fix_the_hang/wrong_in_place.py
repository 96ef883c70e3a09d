"""Reduces the caller's tensor in place.

says: clone
"""

import torch.distributed as dist


def rank_zero_reports(value):
    dist.all_reduce(value)
    return value / dist.get_world_size() if dist.get_rank() == 0 else None
