"""A copy is reduced and thrown away.

says: the rank's own value
"""

import torch
import torch.distributed as dist


def average_gradients(model):
    for p in model.parameters():
        if p.requires_grad:
            if p.grad is None:
                p.grad = torch.zeros_like(p)
            mean = p.grad / dist.get_world_size()
            dist.all_reduce(mean)
