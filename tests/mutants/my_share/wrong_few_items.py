"""Raises when there are fewer items than ranks.

says: ValueError
"""


def my_share(n_items, rank, world_size):
    if n_items < world_size:
        raise ValueError("too few items")
    size, longer = divmod(n_items, world_size)
    start = rank * size + min(rank, longer)
    return range(start, start + size + (rank < longer))
