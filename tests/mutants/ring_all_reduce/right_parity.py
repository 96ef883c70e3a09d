"""Blocking calls only: even ranks send first, odd ones receive first. Slower, never stuck."""

import torch
import torch.distributed as dist


def ring_all_reduce(tensor):
    rank, n = dist.get_rank(), dist.get_world_size()
    if n == 1:
        return
    flat = tensor.flatten().clone()
    pieces = flat.tensor_split(n)

    def exchange(outgoing, incoming):
        if rank % 2 == 0:
            dist.send(outgoing, (rank + 1) % n)
            dist.recv(incoming, (rank - 1) % n)
        else:
            dist.recv(incoming, (rank - 1) % n)
            dist.send(outgoing, (rank + 1) % n)

    for step in range(2 * (n - 1)):
        outgoing, target = pieces[(rank - step) % n], pieces[(rank - step - 1) % n]
        incoming = torch.empty_like(target)
        exchange(outgoing, incoming)
        if step < n - 1:
            target += incoming
        else:
            target.copy_(incoming)
    tensor.copy_(flat.view_as(tensor))
