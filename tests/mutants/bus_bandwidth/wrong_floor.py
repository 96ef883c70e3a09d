"""Integer division swallows the factor.

says: expected
"""


def bus_bandwidth(n_bytes, seconds, ranks):
    return 2 * (ranks - 1) // ranks * n_bytes / seconds
