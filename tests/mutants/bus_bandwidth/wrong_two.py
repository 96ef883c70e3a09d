"""The factor is rounded to 2.

says: near 2
"""


def bus_bandwidth(n_bytes, seconds, ranks):
    return 2 * n_bytes / seconds
