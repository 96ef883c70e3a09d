"""irecv without wait: blocks are read before they are there.

says: never waited
"""

import torch.distributed as dist


def all_gather(tensor):
    rank, n = dist.get_rank(), dist.get_world_size()
    out = tensor.new_zeros((n, *tensor.shape))
    out[rank] = tensor
    all_gather.work = []
    for step in range(n - 1):
        all_gather.work.append(dist.isend(out[(rank - step) % n], (rank + 1) % n))
        all_gather.work.append(dist.irecv(out[(rank - step - 1) % n], (rank - 1) % n))
    return out.clone()
