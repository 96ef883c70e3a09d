"""Ranks other than 0 leave the process.

says: exit
"""

import sys

import torch.distributed as dist


def rank_zero_reports(value):
    total = value.clone()
    dist.all_reduce(total)
    if dist.get_rank() != 0:
        sys.exit(0)
    return total / dist.get_world_size()
