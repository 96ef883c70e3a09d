"""Refuses another world size.

says: valueerror
"""

import torch


def reshard(shards, numel, world_size):
    if len(shards) != world_size:
        raise ValueError('another world size')
    flat = torch.cat(list(shards))[:numel]
    length = -(-numel // world_size)
    flat = torch.cat([flat, flat.new_zeros(length * world_size - numel)])
    return list(flat.view(world_size, length))
