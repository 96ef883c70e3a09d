"""Every stage shards what the next one does.

says: that is stage
"""

def zero_bytes(parameters, world_size, stage):
    share = -(-parameters // world_size)
    weights = 2 * (share if stage >= 2 else parameters)
    gradients = 2 * (share if stage >= 1 else parameters)
    states = 12 * (share if stage >= 1 else parameters)
    return weights + gradients + states
