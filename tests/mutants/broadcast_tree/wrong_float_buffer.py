"""Receives into a float32 buffer whatever the dtype.

says: float32 buffer | aborted
"""

import torch
import torch.distributed as dist


def broadcast(tensor, src=0):
    rank, n = dist.get_rank(), dist.get_world_size()
    me, reach = (rank - src) % n, 1
    while reach < n:
        if me < reach and me + reach < n:
            dist.send(tensor, (me + reach + src) % n)
        elif reach <= me < 2 * reach:
            buffer = torch.zeros(tensor.shape)
            dist.recv(buffer, (me - reach + src) % n)
            tensor.copy_(buffer)
        reach *= 2
