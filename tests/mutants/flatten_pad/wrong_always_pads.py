"""A full row of padding where the length divides already.

says: more padding than needed
"""

import math

import torch


def flatten_pad(tensors, world_size):
    flat = torch.cat([tensor.reshape(-1) for tensor in tensors])
    padding = flat.new_zeros(world_size - flat.numel() % world_size)
    return torch.cat([flat, padding])


def unflatten(flat, shapes):
    parts, start = [], 0
    for shape in shapes:
        numel = math.prod(shape)
        parts.append(flat[start : start + numel].view(shape))
        start += numel
    return parts
