"""The longer shares do not push the later ones on.

says: an earlier rank has already
"""


def my_share(n_items, rank, world_size):
    size, longer = divmod(n_items, world_size)
    start = rank * size
    return range(start, start + size + (rank < longer))
