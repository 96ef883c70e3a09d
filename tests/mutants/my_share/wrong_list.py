"""The items themselves in a list.

says: a list
"""


def my_share(n_items, rank, world_size):
    size, longer = divmod(n_items, world_size)
    start = rank * size + min(rank, longer)
    return list(range(start, start + size + (rank < longer)))
