"""Integer division of bytes by ranks and bandwidth.

says: expected
"""


def ring_seconds(n_bytes, ranks, alpha, beta):
    return 2 * (ranks - 1) * (alpha + n_bytes // (ranks * beta))
