"""Every rank gathers all squares and sums them itself."""

import math

import torch
import torch.distributed as dist


def clip_grad_norm_sharded(shards, max_norm):
    mine = torch.tensor([sum(float((s.double() ** 2).sum()) for s in shards)], dtype=torch.float64)
    everyone = [torch.empty_like(mine) for _ in range(dist.get_world_size())]
    dist.all_gather(everyone, mine)
    norm = math.sqrt(sum(one.item() for one in everyone))
    factor = max_norm / norm if norm > max_norm else 1.0
    for shard in shards:
        shard *= factor
    return norm
