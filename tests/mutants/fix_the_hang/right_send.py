"""By hand: the others send, rank 0 receives."""

import torch
import torch.distributed as dist


def rank_zero_reports(value):
    rank, n = dist.get_rank(), dist.get_world_size()
    if rank != 0:
        dist.send(value, dst=0)
        return None
    total, part = value.clone(), torch.empty_like(value)
    for other in range(1, n):
        dist.recv(part, src=other)
        total += part
    return total.div_(n)
