"""A buffer of zeros is filled, taken apart with split."""

import torch


def flatten_pad(tensors, world_size):
    sizes = [tensor.numel() for tensor in tensors]
    length = (sum(sizes) + world_size - 1) // world_size * world_size
    flat = torch.zeros(length, dtype=tensors[0].dtype, device=tensors[0].device)
    for tensor, place in zip(tensors, flat[: sum(sizes)].split(sizes)):
        place.copy_(tensor.flatten())
    return flat


def unflatten(flat, shapes):
    sizes = [torch.Size(shape).numel() for shape in shapes]
    return tuple(piece.view(shape) for piece, shape in zip(flat[: sum(sizes)].split(sizes), shapes))
