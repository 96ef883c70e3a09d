"""Rank 0 waits for messages that the others send only to rank 1.

says: waits in recv | recv
"""

import torch.distributed as dist


def rank_zero_reports(value):
    rank, total = dist.get_rank(), value.clone()
    if dist.get_world_size() == 1:
        return total
    if rank == 0:
        dist.recv(total, src=1)
        return total
    if rank > 1:
        dist.recv(total, src=rank - 1)
    return None
