"""Sizes are rounded up as torch.chunk does, so the last ranks get little or nothing.

says: differ by more than one
"""


def my_share(n_items, rank, world_size):
    size = -(-n_items // world_size)
    return range(min(rank * size, n_items), min((rank + 1) * size, n_items))
