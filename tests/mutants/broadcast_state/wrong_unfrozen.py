"""Parameters are replaced and all of them train.

says: requires_grad
"""

import torch
import torch.distributed as dist


def broadcast_state(model):
    for tensor in [*model.parameters(), *model.buffers()]:
        dist.broadcast(tensor.data, src=0)
        if isinstance(tensor, torch.nn.Parameter):
            tensor.requires_grad_(True)
