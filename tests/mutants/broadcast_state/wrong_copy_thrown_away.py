"""A copy is broadcast and thrown away.

says: nothing reached it
"""

import torch
import torch.distributed as dist


def broadcast_state(model):
    for tensor in [*model.parameters(), *model.buffers()]:
        dist.broadcast(tensor.detach().clone(), src=0)
