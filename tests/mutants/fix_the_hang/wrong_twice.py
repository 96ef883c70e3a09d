"""Average and one more division.

says: twice
"""

import torch.distributed as dist


def rank_zero_reports(value):
    total = value.clone()
    dist.all_reduce(total, op=dist.ReduceOp.AVG)
    return total / dist.get_world_size() if dist.get_rank() == 0 else None
