"""A rank without shards has nothing to stack.

says: runtimeerror | stack
"""

import torch
import torch.distributed as dist


def clip_grad_norm_sharded(shards, max_norm, group=None):
    squares = torch.stack([shard.double().square().sum() for shard in shards]).sum()
    dist.all_reduce(squares, group=group)
    norm = squares.sqrt().item()
    if norm > max_norm:
        for shard in shards:
            shard.mul_(max_norm / norm)
    return norm
