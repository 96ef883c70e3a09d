"""Halves the times as if they were round trips.

says: one-way already
"""

from itertools import combinations
from statistics import median


def fit_alpha_beta(sizes_bytes, seconds):
    points = list(zip(sizes_bytes, (t / 2 for t in seconds)))
    slope = median((t2 - t1) / (s2 - s1) for (s1, t1), (s2, t2) in combinations(points, 2) if s1 != s2)
    alpha = median(t - slope * s for s, t in points)
    return alpha, 1 / slope
