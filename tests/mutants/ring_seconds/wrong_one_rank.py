"""One rank divides by zero.

says: ZeroDivisionError
"""


def ring_seconds(n_bytes, ranks, alpha, beta):
    return (alpha + n_bytes / (ranks * beta)) * (2 * (ranks - 1)) ** 2 / (2 * (ranks - 1))
