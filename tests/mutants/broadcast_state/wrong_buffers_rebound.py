"""Buffers get new tensors.

says: has a new tensor
"""

import torch
import torch.distributed as dist


def broadcast_state(model):
    for tensor in model.parameters():
        dist.broadcast(tensor.data, src=0)
    for module in model.modules():
        for name, buffer in module.named_buffers(recurse=False):
            new = buffer.clone()
            dist.broadcast(new, 0)
            setattr(module, name, new)
