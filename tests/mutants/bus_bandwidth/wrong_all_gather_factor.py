"""The factor of all-gather.

says: all-gather
"""


def bus_bandwidth(n_bytes, seconds, ranks):
    return (ranks - 1) / ranks * n_bytes / seconds
