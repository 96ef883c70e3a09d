"""Ranks behind the last full power of two wait for a sender that does not exist.

says: recv
"""

import torch.distributed as dist


def broadcast(tensor, src=0):
    rank, n = dist.get_rank(), dist.get_world_size()
    me, reach = (rank - src) % n, 1
    while reach < n:
        if me < reach and me + reach < n - 1:
            dist.send(tensor, (me + reach + src) % n)
        elif reach <= me < 2 * reach:
            dist.recv(tensor, (me - reach + src) % n)
        reach *= 2
