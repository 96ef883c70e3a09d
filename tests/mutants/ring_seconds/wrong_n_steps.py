"""n steps per loop.

says: n−1 steps
"""


def ring_seconds(n_bytes, ranks, alpha, beta):
    return 2 * ranks * (alpha + n_bytes / (ranks * beta))
