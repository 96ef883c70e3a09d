"""Through an integer: the fraction is lost.

says: expected
"""

import torch
import torch.distributed as dist


def sum_over_ranks(value):
    total = torch.tensor(int(value))
    dist.all_reduce(total)
    return float(total)
