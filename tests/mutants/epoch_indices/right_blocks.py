"""Contiguous blocks of a shuffle by Python's own Random; padding repeats one sample."""

from random import Random


def epoch_indices(n, rank, world_size, epoch, seed, drop_last=False):
    order = list(range(n))
    Random(f"{seed}/{epoch}").shuffle(order)
    size = n // world_size if drop_last else (n + world_size - 1) // world_size
    order = order + order[-1:] * (size * world_size - n)
    return order[rank * size : (rank + 1) * size]
