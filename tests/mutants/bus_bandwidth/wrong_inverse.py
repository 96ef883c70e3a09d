"""Seconds per byte.

says: turn it round
"""


def bus_bandwidth(n_bytes, seconds, ranks):
    return seconds / (2 * (ranks - 1) / ranks * n_bytes) if ranks > 1 else 0.0
