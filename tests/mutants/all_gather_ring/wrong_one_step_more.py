"""One step too many: right, but a block travels once more.

says: one step too many
"""

import torch
import torch.distributed as dist


def all_gather(tensor):
    rank, n = dist.get_rank(), dist.get_world_size()
    blocks = [torch.empty_like(tensor) for _ in range(n)]
    blocks[rank].copy_(tensor)
    for step in range(n):
        sending = dist.isend(blocks[(rank - step) % n], (rank + 1) % n)
        dist.recv(blocks[(rank - step - 1) % n], (rank - 1) % n)
        sending.wait()
    return torch.stack(blocks)
