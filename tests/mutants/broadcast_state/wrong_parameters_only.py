"""Buffers are left alone.

says: it is a buffer
"""

import torch
import torch.distributed as dist


def broadcast_state(model):
    for tensor in model.parameters():
        dist.broadcast(tensor.data, src=0)
