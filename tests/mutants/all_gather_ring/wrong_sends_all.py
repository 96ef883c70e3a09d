"""Sends the whole growing buffer in each step.

says: times | bytes
"""

import torch
import torch.distributed as dist


def all_gather(tensor):
    rank, n = dist.get_rank(), dist.get_world_size()
    out = tensor.new_zeros((n, *tensor.shape))
    out[rank] = tensor
    for step in range(n - 1):
        incoming = torch.empty_like(out)
        sending = dist.isend(out, (rank + 1) % n)
        dist.recv(incoming, (rank - 1) % n)
        sending.wait()
        arrived = (rank - step - 1) % n
        out[arrived] = incoming[arrived]
    return out
