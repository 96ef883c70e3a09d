"""One mean over all elements instead of an elementwise one.

says: shape
"""

import torch.distributed as dist


def rank_zero_reports(value):
    total = value.clone()
    dist.all_reduce(total)
    return (total / dist.get_world_size()).mean() if dist.get_rank() == 0 else None
