"""Everyone sends the whole tensor to everyone: right sums, too many bytes.

says: whole tensor | neighbours
"""

import torch
import torch.distributed as dist


def ring_all_reduce(tensor):
    rank, n = dist.get_rank(), dist.get_world_size()
    mine = tensor.contiguous().clone()
    work = [dist.isend(mine, other) for other in range(n) if other != rank]
    parts = [mine if other == rank else torch.empty_like(mine) for other in range(n)]
    for other in range(n):
        if other != rank:
            dist.recv(parts[other], other)
    for handle in work:
        handle.wait()
    tensor.copy_(torch.stack(parts).sum(0))
