"""A tree that also sends the data back to src.

says: which is src
"""

import torch.distributed as dist


def broadcast(tensor, src=0):
    rank, n = dist.get_rank(), dist.get_world_size()
    me, reach = (rank - src) % n, 1
    while reach < n:
        if me < reach and me + reach < n:
            dist.send(tensor, (me + reach + src) % n)
        elif reach <= me < 2 * reach:
            dist.recv(tensor, (me - reach + src) % n)
        reach *= 2
    if n > 1:
        if me == 1:
            dist.send(tensor, src)
        elif me == 0:
            dist.recv(tensor, (1 + src) % n)
