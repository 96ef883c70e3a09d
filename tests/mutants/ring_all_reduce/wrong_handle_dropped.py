"""The handle of isend on a temporary is thrown away, so gloo cancels the send.

says: recv | expected
"""

import torch
import torch.distributed as dist


def ring_all_reduce(tensor):
    rank, n = dist.get_rank(), dist.get_world_size()
    left, right = (rank - 1) % n, (rank + 1) % n
    flat = tensor.reshape(-1).clone()
    pieces = list(flat.tensor_split(n))
    for step in range(n - 1):
        incoming = torch.empty_like(pieces[(rank - step - 1) % n])
        dist.isend(pieces[(rank - step) % n].clone(), right)
        dist.recv(incoming, left)
        pieces[(rank - step - 1) % n] += incoming
    for step in range(n - 1):
        incoming = torch.empty_like(pieces[(rank - step) % n])
        dist.isend(pieces[(rank - step + 1) % n].clone(), right)
        dist.recv(incoming, left)
        pieces[(rank - step) % n].copy_(incoming)
    tensor.copy_(flat.view(tensor.shape))
