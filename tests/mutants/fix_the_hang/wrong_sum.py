"""The sum, never divided.

says: never divided
"""

import torch.distributed as dist


def rank_zero_reports(value):
    total = value.clone()
    dist.all_reduce(total)
    return total if dist.get_rank() == 0 else None
