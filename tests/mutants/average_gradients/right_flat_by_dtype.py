"""One flat all-reduce per dtype, divided before; copied back."""

import torch
import torch.distributed as dist


def average_gradients(model):
    n, groups = dist.get_world_size(), {}
    for p in model.parameters():
        groups.setdefault(p.dtype, []).append(p)
    for dtype in sorted(groups, key=str):
        params = groups[dtype]
        flat = torch.cat([(torch.zeros_like(p) if p.grad is None else p.grad).flatten() for p in params]) / n
        dist.all_reduce(flat)
        for p, piece in zip(params, flat.split([p.numel() for p in params])):
            p.grad = piece.view_as(p).clone()
