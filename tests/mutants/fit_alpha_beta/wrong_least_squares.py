"""Plain least squares: one outlier bends the line.

says: far off
"""

import numpy as np


def fit_alpha_beta(sizes_bytes, seconds):
    slope, alpha = np.polyfit(np.array(sizes_bytes, dtype=float), np.array(seconds), 1)
    return alpha, 1 / slope
