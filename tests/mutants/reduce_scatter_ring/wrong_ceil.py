"""Pieces of the rounded-up size, the last ones short.

says: my_share
"""

import torch
import torch.distributed as dist


def reduce_scatter(tensor):
    rank, n = dist.get_rank(), dist.get_world_size()
    pieces = [
        tensor.flatten()[r * -(-tensor.numel() // n) : (r + 1) * -(-tensor.numel() // n)].clone()
        for r in range(n)
    ]
    for step in range(n - 1):
        outgoing, incoming = pieces[(rank - step - 1) % n], torch.empty_like(pieces[(rank - step - 2) % n])
        sending = dist.isend(outgoing.contiguous(), (rank + 1) % n)
        dist.recv(incoming, (rank - 1) % n)
        sending.wait()
        pieces[(rank - step - 2) % n] += incoming
    return pieces[rank]
