"""Stage 3 leaves the weights whole.

says: that is stage 2
"""

def zero_bytes(parameters, world_size, stage):
    share = -(-parameters // world_size)
    weights = 2 * (share if stage >= 4 else parameters)
    gradients = 2 * (share if stage >= 2 else parameters)
    states = 12 * (share if stage >= 1 else parameters)
    return weights + gradients + states
