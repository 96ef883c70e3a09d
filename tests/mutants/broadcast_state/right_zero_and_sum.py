"""The others put in zeros, and all add up."""

import torch
import torch.distributed as dist


@torch.no_grad()
def broadcast_state(model):
    for t in list(model.parameters()) + list(model.buffers()):
        if dist.get_rank() != 0:
            t.zero_()
        dist.all_reduce(t)
