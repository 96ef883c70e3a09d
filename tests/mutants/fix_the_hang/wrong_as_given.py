"""As given: only rank 0 enters the collective.

says: waits in all_reduce | all_reduce
"""

import torch.distributed as dist


def rank_zero_reports(value):
    if dist.get_rank() == 0:
        total = value.clone()
        dist.all_reduce(total)
        return total / dist.get_world_size()
    return None
