"""torch's own sampler does it."""

import torch
from torch.utils.data import DistributedSampler


def epoch_indices(n, rank, world_size, epoch, seed, drop_last=False):
    sampler = DistributedSampler(range(n), world_size, rank, shuffle=True, seed=seed, drop_last=drop_last)
    sampler.set_epoch(epoch)
    return list(sampler)[: n // world_size if drop_last else None]
