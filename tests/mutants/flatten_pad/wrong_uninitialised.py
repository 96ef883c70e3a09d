"""The padding is whatever was in the memory.

says: padding is not zero
"""

import math

import torch


def flatten_pad(tensors, world_size):
    flat = torch.cat([tensor.reshape(-1) for tensor in tensors])
    padding = flat.new_full((-flat.numel() % world_size,), 3.0)
    return torch.cat([flat, padding])


def unflatten(flat, shapes):
    parts, start = [], 0
    for shape in shapes:
        numel = math.prod(shape)
        parts.append(flat[start : start + numel].view(shape))
        start += numel
    return parts
