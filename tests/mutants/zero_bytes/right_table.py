"""A table of what each stage shards."""

def zero_bytes(parameters, world_size, stage):
    whole, sharded = {0: (16, 0), 1: (4, 12), 2: (2, 14), 3: (0, 16)}[stage]
    return whole * parameters + (sharded * parameters + world_size - 1) // world_size
