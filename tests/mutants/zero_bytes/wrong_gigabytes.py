"""GB, not bytes.

says: gb; bytes
"""

def zero_bytes(parameters, world_size, stage):
    share = -(-parameters // world_size)
    weights = 2 * (share if stage >= 3 else parameters)
    gradients = 2 * (share if stage >= 2 else parameters)
    states = 12 * (share if stage >= 1 else parameters)
    return (weights + gradients + states) / 1e9
