"""Nothing is returned.

says: None
"""


def ring_seconds(n_bytes, ranks, alpha, beta):
    return None
