"""Each part by itself, rounded up in elements."""

def zero_bytes(parameters, world_size, stage):
    share = -(-parameters // world_size)
    weights = 2 * (share if stage >= 3 else parameters)
    gradients = 2 * (share if stage >= 2 else parameters)
    states = 12 * (share if stage >= 1 else parameters)
    return weights + gradients + states
