"""The whole tensor travels around, and each rank cuts out its piece at the end.

says: whole tensor
"""

import torch
import torch.distributed as dist


def reduce_scatter(tensor):
    rank, n = dist.get_rank(), dist.get_world_size()
    total = tensor.flatten().clone()
    travelling = total.clone()
    for _ in range(n - 1):
        incoming = torch.empty_like(travelling)
        sending = dist.isend(travelling, (rank + 1) % n)
        dist.recv(incoming, (rank - 1) % n)
        sending.wait()
        total += incoming
        travelling = incoming
    return total.tensor_split(n)[rank].clone()
