"""Only one of the two loops.

says: takes two
"""


def ring_seconds(n_bytes, ranks, alpha, beta):
    return (ranks - 1) * (alpha + n_bytes / (ranks * beta))
