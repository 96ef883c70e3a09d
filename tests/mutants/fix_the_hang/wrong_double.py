"""The mean comes back in another dtype.

says: float64 tensor
"""

import torch.distributed as dist


def rank_zero_reports(value):
    total = value.double()
    dist.all_reduce(total)
    return total / dist.get_world_size() if dist.get_rank() == 0 else None
