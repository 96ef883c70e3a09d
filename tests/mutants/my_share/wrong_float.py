"""True division gives floats, and range takes none.

says: TypeError
"""


def my_share(n_items, rank, world_size):
    size = n_items / world_size
    return range(rank * size, (rank + 1) * size)
