"""All ranks return the mean.

says: only rank 0 reports
"""

import torch.distributed as dist


def rank_zero_reports(value):
    total = value.clone()
    dist.all_reduce(total)
    return total / dist.get_world_size()
