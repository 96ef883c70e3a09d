"""torch.manual_seed changes the global generator.

says: global generator
"""

import torch


def epoch_indices(n, rank, world_size, epoch, seed, drop_last=False):
    torch.manual_seed(seed + epoch)
    order = torch.randperm(n).tolist()
    if drop_last:
        order = order[: n // world_size * world_size]
    else:
        total = -(-n // world_size) * world_size
        while len(order) < total:
            order += order[: total - len(order)]
    return order[rank::world_size]
