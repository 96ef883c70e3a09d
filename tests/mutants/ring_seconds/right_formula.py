"""Steps times the cost of a step."""


def ring_seconds(n_bytes, ranks, alpha, beta):
    return 2 * (ranks - 1) * (alpha + n_bytes / (ranks * beta))
