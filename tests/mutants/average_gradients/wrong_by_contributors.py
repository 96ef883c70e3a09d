"""Divided by the number of ranks that have a gradient.

says: number of ranks that have this gradient
"""

import torch
import torch.distributed as dist


def average_gradients(model):
    for p in model.parameters():
        if p.requires_grad:
            count = torch.tensor(float(p.grad is not None))
            dist.all_reduce(count)
            count.clamp_(min=1)
            if p.grad is None:
                p.grad = torch.zeros_like(p)
            dist.all_reduce(p.grad)
            p.grad /= count.item()
