"""Alpha is the smallest time, beta the largest size over its time.

says: Beta is
"""


def fit_alpha_beta(sizes_bytes, seconds):
    return min(seconds), max(sizes_bytes) / max(seconds)
