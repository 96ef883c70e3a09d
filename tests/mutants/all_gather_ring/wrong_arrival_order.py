"""Blocks in the order of arrival.

says: not by arrival
"""

import torch
import torch.distributed as dist


def all_gather(tensor):
    rank, n = dist.get_rank(), dist.get_world_size()
    blocks = [tensor]
    for step in range(n - 1):
        incoming = torch.empty_like(tensor)
        sending = dist.isend(blocks[-1], (rank + 1) % n)
        dist.recv(incoming, (rank - 1) % n)
        sending.wait()
        blocks.append(incoming)
    return torch.stack(blocks)
