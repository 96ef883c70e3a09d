"""Elements are dealt out one by one.

says: other elements
"""

import torch


def reshard(shards, numel, world_size):
    flat = torch.cat(list(shards))[:numel]
    length = -(-numel // world_size)
    flat = torch.cat([flat, flat.new_zeros(length * world_size - numel)])
    return list(flat.view(length, world_size).t().contiguous())
