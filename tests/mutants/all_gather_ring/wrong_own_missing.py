"""The own block is never put in.

says: block of rank
"""

import torch
import torch.distributed as dist


def all_gather(tensor):
    rank, n = dist.get_rank(), dist.get_world_size()
    blocks = [torch.zeros_like(tensor) for _ in range(n)]
    first = tensor
    for step in range(n - 1):
        sending = dist.isend(first if step == 0 else blocks[(rank - step) % n], (rank + 1) % n)
        dist.recv(blocks[(rank - step - 1) % n], (rank - 1) % n)
        sending.wait()
    return torch.stack(blocks)
