"""The hang is gone because the collective is.

says: nothing was exchanged
"""

import torch.distributed as dist


def rank_zero_reports(value):
    return value.clone() if dist.get_rank() == 0 else None
