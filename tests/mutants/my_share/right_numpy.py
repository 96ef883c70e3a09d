"""Cuts an array of all items and looks at the ends of the piece."""

import numpy as np


def my_share(n_items, rank, world_size):
    piece = np.array_split(np.arange(n_items), world_size)[rank]
    return range(int(piece[0]), int(piece[-1]) + 1) if len(piece) else range(0)
