"""The factor upside down.

says: upside down
"""


def bus_bandwidth(n_bytes, seconds, ranks):
    return ranks / (2 * (ranks - 1)) * n_bytes / seconds if ranks > 1 else 0.0
