"""From rank to rank: n−1 rounds.

says: rounds
"""

import torch.distributed as dist


def broadcast(tensor, src=0):
    rank, n = dist.get_rank(), dist.get_world_size()
    me = (rank - src) % n
    if me > 0:
        dist.recv(tensor, (rank - 1) % n)
    if me < n - 1:
        dist.send(tensor, (rank + 1) % n)
