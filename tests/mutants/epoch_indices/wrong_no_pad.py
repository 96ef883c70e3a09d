"""No padding: shares of unequal length.

says: not the same number
"""

import torch


def epoch_indices(n, rank, world_size, epoch, seed, drop_last=False):
    generator = torch.Generator().manual_seed(seed + epoch)
    order = torch.randperm(n, generator=generator).tolist()
    if drop_last:
        order = order[: n // world_size * world_size]
    else:
        total = -(-n // world_size) * world_size
        order = order[:total]
    return order[rank::world_size]
