"""Alpha is paid once.

says: each of the 2(n−1) steps
"""


def ring_seconds(n_bytes, ranks, alpha, beta):
    return alpha + 2 * (ranks - 1) * n_bytes / (ranks * beta)
