"""Skips messages of empty pieces, and copies nothing where the input is contiguous."""

import torch
import torch.distributed as dist


def ring_all_reduce(tensor):
    rank, n = dist.get_rank(), dist.get_world_size()
    flat = tensor.contiguous().view(-1)
    pieces = flat.tensor_split(n)
    left, right = (rank - 1) % n, (rank + 1) % n

    def exchange(out, into):
        sending = dist.isend(out, right) if out.numel() else None
        if into.numel():
            dist.recv(into, left)
        if sending:
            sending.wait()

    for step in range(n - 1):
        target = pieces[(rank - step - 1) % n]
        incoming = torch.empty_like(target)
        exchange(pieces[(rank - step) % n], incoming)
        target.add_(incoming)
    for step in range(n - 1):
        exchange(pieces[(rank + 1 - step) % n], pieces[(rank - step) % n])
    if not tensor.is_contiguous():
        tensor.copy_(flat.view(tensor.shape))
