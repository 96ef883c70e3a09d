"""The padding is float32 whatever the tensors are, and so is the result.

says: float32
"""

import math

import torch


def flatten_pad(tensors, world_size):
    flat = torch.cat([tensor.reshape(-1) for tensor in tensors])
    padding = flat.new_zeros(-flat.numel() % world_size)
    return torch.cat([flat, padding]).float()


def unflatten(flat, shapes):
    parts, start = [], 0
    for shape in shapes:
        numel = math.prod(shape)
        parts.append(flat[start : start + numel].view(shape))
        start += numel
    return parts
