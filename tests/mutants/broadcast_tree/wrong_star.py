"""src sends to each rank, one after the other.

says: rounds
"""

import torch.distributed as dist


def broadcast(tensor, src=0):
    rank, n = dist.get_rank(), dist.get_world_size()
    if rank == src:
        for other in range(n):
            if other != src:
                dist.send(tensor, other)
    else:
        dist.recv(tensor, src)
