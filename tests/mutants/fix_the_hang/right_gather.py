"""Rank 0 gathers all and averages by itself, and prints a lot."""

import torch
import torch.distributed as dist


def rank_zero_reports(value):
    rank, n = dist.get_rank(), dist.get_world_size()
    print("here is rank", rank, "x" * 100_000)
    parts = [torch.empty_like(value) for _ in range(n)] if rank == 0 else None
    dist.gather(value.clone(), parts, dst=0)
    return torch.stack(parts).double().mean(0).to(value.dtype) if rank == 0 else None
