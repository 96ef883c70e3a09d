"""Blocks begin one too early, so neighbours share a sample.

says: overlap by one
"""

import torch


def epoch_indices(n, rank, world_size, epoch, seed, drop_last=False):
    generator = torch.Generator().manual_seed(seed + epoch)
    order = torch.randperm(n, generator=generator).tolist()
    if drop_last:
        order = order[: n // world_size * world_size]
    else:
        total = -(-n // world_size) * world_size
        while len(order) < total:
            order += order[: total - len(order)]
    size = len(order) // world_size
    start = rank * max(size - 1, 1)
    return (order + order)[start : start + size]
