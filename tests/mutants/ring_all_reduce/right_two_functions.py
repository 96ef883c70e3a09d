"""A reduce-scatter of floor-and-rest pieces that ends at piece r, then an all-gather."""

import torch
import torch.distributed as dist


def reduce_scatter(pieces, rank, n):
    travelling = pieces[(rank - 1) % n].clone()
    for step in range(2, n + 1):
        mine = pieces[(rank - step) % n]
        incoming = torch.empty_like(mine)
        sending = dist.isend(travelling, (rank + 1) % n)
        dist.recv(incoming, (rank - 1) % n)
        sending.wait()
        travelling = incoming + mine
    return travelling


def all_gather(mine, pieces, rank, n):
    pieces[rank] = mine
    for step in range(n - 1):
        incoming = torch.empty_like(pieces[(rank - step - 1) % n])
        sending = dist.isend(pieces[(rank - step) % n], (rank + 1) % n)
        dist.recv(incoming, (rank - 1) % n)
        sending.wait()
        pieces[(rank - step - 1) % n] = incoming
    return torch.cat(pieces)


def ring_all_reduce(tensor):
    rank, n = dist.get_rank(), dist.get_world_size()
    flat = tensor.reshape(-1)
    size = flat.numel() // n
    cuts = [min(flat.numel(), r * size + min(r, flat.numel() % n)) for r in range(n + 1)]
    pieces = [flat[cuts[r] : cuts[r + 1]].contiguous() for r in range(n)]
    mine = reduce_scatter(pieces, rank, n)
    tensor.copy_(all_gather(mine, pieces, rank, n).reshape(tensor.shape))
