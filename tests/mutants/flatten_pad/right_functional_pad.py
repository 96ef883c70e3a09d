"""torch.nn.functional.pad, narrow and as_strided."""

import torch
import torch.nn.functional as F


def flatten_pad(tensors, world_size):
    flat = torch.cat([t.contiguous().view(-1) for t in tensors])
    rest = flat.numel() % world_size
    return F.pad(flat, (0, world_size - rest)) if rest else flat


def unflatten(flat, shapes):
    out, offset = [], 0
    for shape in shapes:
        empty = torch.empty(shape, device="meta")
        out.append(flat.as_strided(tuple(shape), empty.stride(), flat.storage_offset() + offset))
        offset += empty.numel()
    return out
