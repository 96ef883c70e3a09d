"""All stages shard all.

says: stage 3 for every
"""

def zero_bytes(parameters, world_size, stage):
    share = -(-parameters // world_size)
    weights = 2 * (share if True else parameters)
    gradients = 2 * (share if True else parameters)
    states = 12 * (share if True else parameters)
    return weights + gradients + states
