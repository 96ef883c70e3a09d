"""The norm is divided by the number of ranks.

says: divided by the number of ranks
"""

import torch
import torch.distributed as dist


def clip_grad_norm_sharded(shards, max_norm, group=None):
    squares = torch.zeros((), dtype=torch.float64)
    for shard in shards:
        squares += shard.double().square().sum()
    dist.all_reduce(squares, group=group)
    norm = squares.sqrt().item() / dist.get_world_size()
    if norm > max_norm:
        for shard in shards:
            shard.mul_(max_norm / norm)
    return norm
