"""Latency term plus bandwidth term."""


def ring_seconds(n_bytes, ranks, alpha, beta):
    steps = 2 * (ranks - 1)
    return steps * alpha + steps / ranks * n_bytes / beta
