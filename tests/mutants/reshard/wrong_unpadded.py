"""The last shard is short.

says: padded
"""

import torch


def reshard(shards, numel, world_size):
    flat = torch.cat(list(shards))[:numel]
    length = -(-numel // world_size)
    return [flat[r * length : (r + 1) * length] for r in range(world_size)]
