"""all_reduce works in place; its return value is None.

says: None
"""

import torch
import torch.distributed as dist


def sum_over_ranks(value):
    return dist.all_reduce(torch.tensor(value, dtype=torch.float64))
