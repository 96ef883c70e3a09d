"""Calls the library.

says: library's all_reduce
"""

import torch.distributed as dist


def reduce_scatter(tensor):
    rank, n = dist.get_rank(), dist.get_world_size()
    total = tensor.flatten().clone()
    dist.all_reduce(total)
    return total.tensor_split(n)[rank].clone()
