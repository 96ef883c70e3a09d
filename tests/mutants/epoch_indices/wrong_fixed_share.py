"""Cut first, then shuffled: a rank's samples never change.

says: the same samples in every epoch
"""

import torch


def epoch_indices(n, rank, world_size, epoch, seed, drop_last=False):
    generator = torch.Generator().manual_seed(seed + epoch)
    order = list(range(n))
    if drop_last:
        order = order[: n // world_size * world_size]
    else:
        total = -(-n // world_size) * world_size
        while len(order) < total:
            order += order[: total - len(order)]
    mine = order[rank::world_size]
    return [mine[i] for i in torch.randperm(len(mine), generator=generator).tolist()]
