"""The algorithm bandwidth.

says: algorithm bandwidth
"""


def bus_bandwidth(n_bytes, seconds, ranks):
    return n_bytes / seconds
