"""The norm is right, the factor is the rank's own.

says: same factor
"""

import torch
import torch.distributed as dist


def clip_grad_norm_sharded(shards, max_norm, group=None):
    squares = torch.zeros((), dtype=torch.float64)
    for shard in shards:
        squares += shard.double().square().sum()
    own = squares.sqrt().item()
    dist.all_reduce(squares, group=group)
    norm = squares.sqrt().item()
    if own > max_norm:
        for shard in shards:
            shard.mul_(max_norm / own)
    return norm
