"""All enter, rank 0 returns."""

import torch.distributed as dist


def rank_zero_reports(value):
    total = value.clone()
    dist.all_reduce(total)
    if dist.get_rank() == 0:
        return total / dist.get_world_size()
