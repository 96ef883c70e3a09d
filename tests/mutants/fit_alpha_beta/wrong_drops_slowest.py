"""Drops the slowest point, outlier or not, and fits the rest.

says: far off
"""

import numpy as np


def fit_alpha_beta(sizes_bytes, seconds):
    points = sorted(zip(seconds, sizes_bytes))[:-1]
    slope, alpha = np.polyfit([s for _, s in points], [t for t, _ in points], 1)
    return float(alpha), float(1 / slope)
