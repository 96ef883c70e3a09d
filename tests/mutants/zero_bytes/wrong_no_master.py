"""The fp32 master copy of the weights is forgotten.

says: 8 bytes
"""

def zero_bytes(parameters, world_size, stage):
    share = -(-parameters // world_size)
    weights = 2 * (share if stage >= 3 else parameters)
    gradients = 2 * (share if stage >= 2 else parameters)
    states = 8 * (share if stage >= 1 else parameters)
    return weights + gradients + states
