"""Only rank 0 gets the mean.

says: different results | was expected
"""

import torch
import torch.distributed as dist


def average_gradients(model):
    for p in model.parameters():
        if p.requires_grad:
            if p.grad is None:
                p.grad = torch.zeros_like(p)
            dist.reduce(p.grad, 0)
            p.grad /= dist.get_world_size()
