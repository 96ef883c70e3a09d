"""Receives into a copy and only renames the local variable.

says: nothing reached it
"""

import torch.distributed as dist


def broadcast(tensor, src=0):
    rank, n = dist.get_rank(), dist.get_world_size()
    tensor = tensor.clone()
    me, reach = (rank - src) % n, 1
    while reach < n:
        if me < reach and me + reach < n:
            dist.send(tensor, (me + reach + src) % n)
        elif reach <= me < 2 * reach:
            dist.recv(tensor, (me - reach + src) % n)
        reach *= 2
