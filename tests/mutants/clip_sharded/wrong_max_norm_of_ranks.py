"""The largest of the ranks' norms.

says: largest
"""

import torch
import torch.distributed as dist


def clip_grad_norm_sharded(shards, max_norm, group=None):
    squares = torch.zeros((), dtype=torch.float64)
    for shard in shards:
        squares += shard.double().square().sum()
    dist.all_reduce(squares, op=dist.ReduceOp.MAX, group=group)
    norm = squares.sqrt().item()
    if norm > max_norm:
        for shard in shards:
            shard.mul_(max_norm / norm)
    return norm
