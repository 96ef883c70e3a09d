"""All gradients are gathered and averaged at home, in double precision."""

import torch
import torch.distributed as dist


def average_gradients(model):
    n = dist.get_world_size()
    for p in reversed(list(model.parameters())):
        mine = p.grad if p.grad is not None else torch.zeros_like(p)
        all_of_them = [torch.empty_like(mine) for _ in range(n)]
        dist.all_gather(all_of_them, mine.contiguous())
        p.grad = torch.stack(all_of_them).double().mean(0).to(p.dtype)
