"""Bytes of a piece times steps, over the time; one rank sends nothing."""


def bus_bandwidth(n_bytes, seconds, ranks):
    if ranks == 1:
        return 0
    return 2 * (ranks - 1) * (n_bytes / ranks) / seconds
