"""One message's time.

says: ring | one message
"""


def ring_seconds(n_bytes, ranks, alpha, beta):
    return alpha + n_bytes / beta
