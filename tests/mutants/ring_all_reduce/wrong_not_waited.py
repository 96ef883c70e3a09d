"""irecv is never waited for.

says: never waited
"""

import torch
import torch.distributed as dist


def ring_all_reduce(tensor):
    rank, n = dist.get_rank(), dist.get_world_size()
    left, right = (rank - 1) % n, (rank + 1) % n
    flat = tensor.reshape(-1).clone()
    work = []
    pieces = list(flat.tensor_split(n))
    for step in range(n - 1):
        incoming = torch.zeros_like(pieces[(rank - step - 1) % n])
        sending = dist.isend(pieces[(rank - step) % n], right)
        receiving = dist.irecv(incoming, left)
        sending.wait()
        work.append(receiving)
        pieces[(rank - step - 1) % n] += incoming
    for step in range(n - 1):
        incoming = torch.zeros_like(pieces[(rank - step) % n])
        sending = dist.isend(pieces[(rank - step + 1) % n], right)
        receiving = dist.irecv(incoming, left)
        sending.wait()
        work.append(receiving)
        pieces[(rank - step) % n].copy_(incoming)
    tensor.copy_(flat.view(tensor.shape))
