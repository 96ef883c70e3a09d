"""Only rank 0 calls.

says: nothing reached it | hang | wait
"""

import torch
import torch.distributed as dist


def broadcast_state(model):
    for tensor in [*model.parameters(), *model.buffers()]:
        if dist.get_rank() == 0:
            dist.broadcast(tensor.data, src=0)
