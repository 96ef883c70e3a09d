"""nccl-tests' definition for an all-reduce."""


def bus_bandwidth(n_bytes, seconds, ranks):
    return 2 * (ranks - 1) / ranks * n_bytes / seconds
