"""The pair of points whose line most others lie on, refined by weighted least squares; returns tensors."""

import torch


def fit_alpha_beta(sizes_bytes, seconds):
    sizes, times = torch.tensor(sizes_bytes, dtype=torch.float64), torch.tensor(seconds, dtype=torch.float64)
    best = None
    for i in range(len(sizes)):
        for j in range(i):
            slope = (times[i] - times[j]) / (sizes[i] - sizes[j])
            alpha = times[i] - slope * sizes[i]
            error = ((alpha + slope * sizes - times) / times).abs().median()
            if best is None or error < best[0]:
                best = (error, alpha, slope)
    _, alpha, slope = best
    keep = ((alpha + slope * sizes - times) / times).abs() < 0.1
    weights = (1 / times[keep]).unsqueeze(1)
    table = torch.stack([torch.ones_like(sizes[keep]), sizes[keep]], 1) * weights
    alpha, slope = torch.linalg.lstsq(table, times[keep].unsqueeze(1) * weights).solution.flatten()
    return alpha, 1 / slope
