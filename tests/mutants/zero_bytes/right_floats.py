"""With floats, rounded up at the end."""

import math


def zero_bytes(parameters, world_size, stage):
    split = lambda since: world_size if stage >= since else 1
    return math.ceil(2 * parameters / split(3) + 2 * parameters / split(2) + 12 * parameters / split(1))
