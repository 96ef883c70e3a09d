"""The old padding is cut anew with the rest.

says: old padding
"""

import torch


def reshard(shards, numel, world_size):
    flat = torch.cat(list(shards))
    length = -(-flat.numel() // world_size)
    flat = torch.cat([flat, flat.new_zeros(length * world_size - flat.numel())])
    return list(flat.view(world_size, length))
