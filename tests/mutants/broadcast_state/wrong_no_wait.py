"""Handles are never waited for.

says: a `wait()` is missing
"""

import torch
import torch.distributed as dist


def broadcast_state(model):
    for tensor in [*model.parameters(), *model.buffers()]:
        dist.broadcast(tensor.data, src=0, async_op=True)
