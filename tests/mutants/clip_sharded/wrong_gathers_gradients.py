"""All gradients are gathered on every rank.

says: one number is enough
"""

import torch
import torch.distributed as dist


def clip_grad_norm_sharded(shards, max_norm, group=None):
    squares = torch.zeros((), dtype=torch.float64)
    for shard in shards:
        squares += shard.double().square().sum()
    flat = torch.zeros(64, dtype=torch.float64)
    flat[dist.get_rank()] = squares
    dist.all_reduce(flat, group=group)
    squares = flat.sum()
    norm = squares.sqrt().item()
    if norm > max_norm:
        for shard in shards:
            shard.mul_(max_norm / norm)
    return norm
