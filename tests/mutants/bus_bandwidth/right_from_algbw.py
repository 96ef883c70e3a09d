"""Algorithm bandwidth times the factor."""


def bus_bandwidth(n_bytes, seconds, ranks):
    algbw = n_bytes / seconds
    return algbw * (2 - 2 / ranks)
