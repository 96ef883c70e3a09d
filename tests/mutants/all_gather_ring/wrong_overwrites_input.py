"""Uses the input as its travelling buffer.

says: input is changed
"""

import torch
import torch.distributed as dist


def all_gather(tensor):
    rank, n = dist.get_rank(), dist.get_world_size()
    out = tensor.new_empty((n, *tensor.shape))
    out[rank] = tensor
    for step in range(n - 1):
        incoming = torch.empty_like(tensor)
        sending = dist.isend(tensor, (rank + 1) % n)
        dist.recv(incoming, (rank - 1) % n)
        sending.wait()
        tensor.copy_(incoming)
        out[(rank - step - 1) % n] = incoming
    return out
