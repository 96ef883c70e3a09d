"""Shards keep their old length.

says: elements
"""

import torch


def reshard(shards, numel, world_size):
    flat = torch.cat(list(shards))[:numel]
    length = max(shards[0].numel(), -(-numel // world_size))
    flat = torch.cat([flat, flat.new_zeros(length * world_size - numel)])
    return list(flat.view(world_size, length))
