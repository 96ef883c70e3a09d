"""In bits per second.

says: bits
"""


def bus_bandwidth(n_bytes, seconds, ranks):
    return 8 * 2 * (ranks - 1) / ranks * n_bytes / seconds
