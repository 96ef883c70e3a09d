"""What stood in the old padding comes back in the new one.

says: padding is not zero
"""

import torch


def reshard(shards, numel, world_size):
    flat = torch.cat(list(shards))
    length = -(-numel // world_size)
    flat = torch.cat([flat, flat.new_zeros(length * world_size)])[: length * world_size]
    return list(flat.view(world_size, length))
