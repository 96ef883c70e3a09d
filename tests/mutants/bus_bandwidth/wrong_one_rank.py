"""One rank divides by zero.

says: ZeroDivisionError
"""


def bus_bandwidth(n_bytes, seconds, ranks):
    return 1 / (ranks / (2 * (ranks - 1)) * seconds / n_bytes)
