"""What all ranks send together.

says: together | per rank
"""


def bus_bandwidth(n_bytes, seconds, ranks):
    return 2 * (ranks - 1) * n_bytes / seconds
