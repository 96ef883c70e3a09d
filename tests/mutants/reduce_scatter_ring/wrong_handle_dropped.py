"""The handle of isend is thrown away, so gloo cancels the send.

says: recv | expected
"""

import torch
import torch.distributed as dist


def reduce_scatter(tensor):
    rank, n = dist.get_rank(), dist.get_world_size()
    pieces = list(tensor.flatten().clone().tensor_split(n))
    for step in range(n - 1):
        outgoing, incoming = pieces[(rank - step - 1) % n], torch.empty_like(pieces[(rank - step - 2) % n])
        dist.isend(outgoing.clone(), (rank + 1) % n)
        dist.recv(incoming, (rank - 1) % n)
        pieces[(rank - step - 2) % n] += incoming
    return pieces[rank]
