"""Lengths are rounded down.

says: elements
"""

import torch


def reshard(shards, numel, world_size):
    flat = torch.cat(list(shards))[:numel]
    length = numel // world_size
    flat = flat[: length * world_size]
    return list(flat.view(world_size, length))
