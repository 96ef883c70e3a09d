"""One fp32 number for all of AdamW.

says: 4 bytes
"""

def zero_bytes(parameters, world_size, stage):
    share = -(-parameters // world_size)
    weights = 2 * (share if stage >= 3 else parameters)
    gradients = 2 * (share if stage >= 2 else parameters)
    states = 4 * (share if stage >= 1 else parameters)
    return weights + gradients + states
