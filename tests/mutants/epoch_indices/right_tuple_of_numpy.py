"""numpy's generator and wrapping indices; a tuple."""

import numpy as np


def epoch_indices(n, rank, world_size, epoch, seed, drop_last=False):
    order = np.random.default_rng([seed, epoch]).permutation(n)
    size = n // world_size if drop_last else -(-n // world_size)
    return tuple(order[(rank + step * world_size) % n] for step in range(size))
