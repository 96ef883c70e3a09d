"""One tensor with a row for each rank.

says: list
"""

import torch


def reshard(shards, numel, world_size):
    flat = torch.cat(list(shards))[:numel]
    length = -(-numel // world_size)
    flat = torch.cat([flat, flat.new_zeros(length * world_size - numel)])
    return flat.view(world_size, length)
