"""Handles are never waited for.

says: a `wait()` is missing
"""

import torch
import torch.distributed as dist


def average_gradients(model):
    for p in model.parameters():
        if p.requires_grad:
            if p.grad is None:
                p.grad = torch.zeros_like(p)
            dist.all_reduce(p.grad, async_op=True)
            p.grad /= dist.get_world_size()
