"""Works on contiguous views only: the copy of a strided tensor is never written back.

says: not contiguous
"""

import torch
import torch.distributed as dist


def ring_all_reduce(tensor):
    rank, n = dist.get_rank(), dist.get_world_size()
    left, right = (rank - 1) % n, (rank + 1) % n
    flat = tensor.contiguous().view(-1)
    pieces = list(flat.tensor_split(n))
    for step in range(n - 1):
        incoming = torch.empty_like(pieces[(rank - step - 1) % n])
        sending = dist.isend(pieces[(rank - step) % n], right)
        dist.recv(incoming, left)
        sending.wait()
        pieces[(rank - step - 1) % n] += incoming
    for step in range(n - 1):
        incoming = torch.empty_like(pieces[(rank - step) % n])
        sending = dist.isend(pieces[(rank - step + 1) % n], right)
        dist.recv(incoming, left)
        sending.wait()
        pieces[(rank - step) % n].copy_(incoming)
