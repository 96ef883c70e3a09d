"""The old shards are changed.

says: changes the shards
"""

import torch


def reshard(shards, numel, world_size):
    flat = torch.cat(list(shards))[:numel]
    shards[-1].zero_()
    length = -(-numel // world_size)
    flat = torch.cat([flat, flat.new_zeros(length * world_size - numel)])
    return list(flat.view(world_size, length))
