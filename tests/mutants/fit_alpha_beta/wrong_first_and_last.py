"""The line through the first and the last point, as if sorted and clean.

says: Beta is
"""


def fit_alpha_beta(sizes_bytes, seconds):
    slope = (seconds[-1] - seconds[0]) / (sizes_bytes[-1] - sizes_bytes[0])
    return seconds[0] - slope * sizes_bytes[0], 1 / slope
