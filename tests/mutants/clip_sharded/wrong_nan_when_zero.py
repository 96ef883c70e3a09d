"""Divides by a norm of zero.

says: not finite
"""

import torch
import torch.distributed as dist


def clip_grad_norm_sharded(shards, max_norm, group=None):
    squares = torch.zeros((), dtype=torch.float64)
    for shard in shards:
        squares += shard.double().square().sum()
    dist.all_reduce(squares, group=group)
    norm = squares.sqrt().item()
    if True:
        for shard in shards:
            shard.mul_(torch.tensor(max_norm / 1.0) / torch.tensor(norm) if norm > max_norm or norm == 0 else 1.0)
    return norm
