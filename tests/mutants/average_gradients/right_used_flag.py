"""Ranks first agree on who has what; unused everywhere stays None."""

import torch
import torch.distributed as dist


def average_gradients(model):
    params = list(model.parameters())
    used = torch.tensor([p.grad is not None for p in params], dtype=torch.int32)
    dist.all_reduce(used, op=dist.ReduceOp.MAX)
    works = []
    for p, u in zip(params, used.tolist()):
        if u:
            g = p.grad if p.grad is not None else torch.zeros_like(p)
            p.grad = g
            works.append((g, dist.all_reduce(g, async_op=True)))
    for g, work in works:
        work.wait()
        g.mul_(1.0 / dist.get_world_size())
