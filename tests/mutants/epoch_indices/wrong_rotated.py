"""The order is only rotated by the epoch.

says: not shuffled
"""

import torch


def epoch_indices(n, rank, world_size, epoch, seed, drop_last=False):
    generator = torch.Generator().manual_seed(seed + epoch)
    order = [(i + seed + epoch) % n for i in range(n)]
    if drop_last:
        order = order[: n // world_size * world_size]
    else:
        total = -(-n // world_size) * world_size
        while len(order) < total:
            order += order[: total - len(order)]
    return order[rank::world_size]
