"""Returns the tensor, not the number in it.

says: .item()
"""

import torch
import torch.distributed as dist


def sum_over_ranks(value):
    total = torch.tensor(value, dtype=torch.float64)
    dist.all_reduce(total)
    return total
