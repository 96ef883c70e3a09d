"""Rank 0's gradients for all.

says: it was broadcast
"""

import torch
import torch.distributed as dist


def average_gradients(model):
    for p in model.parameters():
        if p.requires_grad:
            if p.grad is None:
                p.grad = torch.zeros_like(p)
            dist.broadcast(p.grad, 0)
