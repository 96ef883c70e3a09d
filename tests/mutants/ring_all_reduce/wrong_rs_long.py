"""The reduce-scatter takes one step too many; the all-gather covers it up, the bytes do not.

says: one step too many
"""

import torch
import torch.distributed as dist


def ring_all_reduce(tensor):
    rank, n = dist.get_rank(), dist.get_world_size()
    left, right = (rank - 1) % n, (rank + 1) % n
    flat = tensor.reshape(-1).clone()
    pieces = list(flat.tensor_split(n))
    for step in range(n):
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
    tensor.copy_(flat.view(tensor.shape))
