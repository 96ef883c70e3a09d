"""The other direction, one batch of isend and irecv per step."""

import torch
import torch.distributed as dist


def ring_all_reduce(tensor):
    rank, n = dist.get_rank(), dist.get_world_size()
    work = tensor.contiguous().view(-1).clone()
    pieces = work.tensor_split(n)

    def exchange(outgoing, incoming):
        ops = [
            dist.P2POp(dist.irecv, incoming, (rank + 1) % n),
            dist.P2POp(dist.isend, outgoing, (rank - 1) % n),
        ]
        for handle in dist.batch_isend_irecv(ops):
            handle.wait()

    for step in range(n - 1):
        incoming = torch.empty_like(pieces[(rank + step + 1) % n])
        exchange(pieces[(rank + step) % n], incoming)
        pieces[(rank + step + 1) % n].add_(incoming)
    for step in range(n - 1):
        exchange(pieces[(rank + step - 1) % n], pieces[(rank + step) % n])
    tensor.copy_(work.reshape(tensor.shape))
    return tensor
