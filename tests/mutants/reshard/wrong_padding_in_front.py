"""The padding comes first.

says: other elements
"""

import torch


def reshard(shards, numel, world_size):
    flat = torch.cat(list(shards))[:numel]
    length = -(-numel // world_size)
    flat = torch.cat([flat.new_zeros(length * world_size - numel), flat])
    return list(flat.view(world_size, length))
