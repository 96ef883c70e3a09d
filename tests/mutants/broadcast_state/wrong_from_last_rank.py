"""The source is the last rank.

says: what rank 3 put in
"""

import torch
import torch.distributed as dist


def broadcast_state(model):
    for tensor in [*model.parameters(), *model.buffers()]:
        dist.broadcast(tensor.data, src=dist.get_world_size() - 1)
