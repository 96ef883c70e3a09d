"""After the usual ring the piece r is returned, which is not finished.

says: another piece the finished one
"""

import torch
import torch.distributed as dist


def reduce_scatter(tensor):
    rank, n = dist.get_rank(), dist.get_world_size()
    pieces = list(tensor.flatten().clone().tensor_split(n))
    for step in range(n - 1):
        incoming = torch.empty_like(pieces[(rank - step - 1) % n])
        sending = dist.isend(pieces[(rank - step) % n], (rank + 1) % n)
        dist.recv(incoming, (rank - 1) % n)
        sending.wait()
        pieces[(rank - step - 1) % n] += incoming
    return pieces[rank]
