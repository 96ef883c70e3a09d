"""Non-persistent buffers are left alone.

says: in no state dict
"""

import torch
import torch.distributed as dist


def broadcast_state(model):
    for tensor in model.state_dict().values():
        dist.broadcast(tensor.data, src=0)
