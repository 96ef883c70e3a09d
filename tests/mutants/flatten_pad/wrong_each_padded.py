"""Every tensor is padded by itself.

says: more padding than needed | at the very end
"""

import math

import torch


def flatten_pad(tensors, world_size):
    flat = torch.cat([torch.nn.functional.pad(tensor.reshape(-1), (0, -tensor.numel() % world_size)) for tensor in tensors])
    padding = flat.new_zeros(-flat.numel() % world_size)
    return torch.cat([flat, padding])


def unflatten(flat, shapes):
    parts, start = [], 0
    for shape in shapes:
        numel = math.prod(shape)
        parts.append(flat[start : start + numel].view(shape))
        start += numel
    return parts
