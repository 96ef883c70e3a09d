"""The other direction, blocking calls in parity order, the sum in a travelling buffer."""

import torch
import torch.distributed as dist


def reduce_scatter(tensor):
    rank, n = dist.get_rank(), dist.get_world_size()
    size, longer = divmod(tensor.numel(), n)
    flat = tensor.reshape(-1)

    def piece(r):
        start = r * size + min(r, longer)
        return flat[start : start + size + (r < longer)]

    travelling = piece((rank + 1) % n).clone()
    for step in range(n - 1):
        target = (rank + step + 2) % n
        incoming = torch.empty_like(piece(target))
        if rank % 2:
            dist.recv(incoming, (rank + 1) % n)
            dist.send(travelling, (rank - 1) % n)
        else:
            dist.send(travelling, (rank - 1) % n)
            dist.recv(incoming, (rank + 1) % n)
        travelling = incoming + piece(target)
    return travelling
