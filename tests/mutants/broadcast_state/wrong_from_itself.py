"""Each rank is its own source.

says: hang | nothing reached it | different | deadlock | rank
"""

import torch
import torch.distributed as dist


def broadcast_state(model):
    for tensor in [*model.parameters(), *model.buffers()]:
        dist.broadcast(tensor.data, src=dist.get_rank())
