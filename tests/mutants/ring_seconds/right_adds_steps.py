"""Adds up the steps one by one; 0 for one rank as an int."""


def ring_seconds(n_bytes, ranks, alpha, beta):
    total = 0
    for _ in range(ranks - 1):
        for _ in ("reduce-scatter", "all-gather"):
            total += alpha + n_bytes / ranks / beta
    return total
