"""One flat broadcast for each dtype, copied back."""

import torch
import torch.distributed as dist


@torch.no_grad()
def broadcast_state(model):
    by_dtype = {}
    for t in [*model.parameters(), *model.buffers()]:
        by_dtype.setdefault(t.dtype, []).append(t)
    for tensors in by_dtype.values():
        flat = torch.cat([t.reshape(-1) for t in tensors])
        dist.broadcast(flat, 0)
        for t, piece in zip(tensors, flat.split([t.numel() for t in tensors])):
            t.copy_(piece.view_as(t))
