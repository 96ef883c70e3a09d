"""A gradient that no rank has becomes one.

says: made one up | with zeros where
"""

import torch
import torch.distributed as dist


def average_gradients(model):
    for p in model.parameters():
        if p.requires_grad:
            if p.grad is None:
                p.grad = torch.ones_like(p) * 0 if p.dim() == 1 else torch.full_like(p, 1e-3)
            dist.all_reduce(p.grad)
            p.grad /= dist.get_world_size()
