"""Padding by a slice is too short when there are fewer samples than padding.

says: repeat the list often enough
"""

import torch


def epoch_indices(n, rank, world_size, epoch, seed, drop_last=False):
    generator = torch.Generator().manual_seed(seed + epoch)
    order = torch.randperm(n, generator=generator).tolist()
    if drop_last:
        order = order[: n // world_size * world_size]
    else:
        total = -(-n // world_size) * world_size
        order += order[: total - len(order)]
    return order[rank::world_size]
