"""The last rank takes the whole remainder.

says: differ by more than one
"""


def my_share(n_items, rank, world_size):
    size = n_items // world_size
    stop = n_items if rank == world_size - 1 else (rank + 1) * size
    return range(rank * size, stop)
