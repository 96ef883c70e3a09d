"""All-reduces in the hooks that wait at once: less is hidden, but the first goes early."""

from contextlib import contextmanager

import torch
import torch.distributed as dist
from torch import nn


def broadcast_state(model):
    for tensor in [*model.parameters(), *model.buffers()]:
        dist.broadcast(tensor.data, src=0)


def make_buckets(parameters, cap_bytes):
    buckets, bucket, used = [], [], 0
    for parameter in reversed(list(parameters)):
        size = parameter.numel() * parameter.element_size()
        if bucket and (used + size > cap_bytes or parameter.dtype != bucket[-1].dtype):
            buckets.append(bucket)
            bucket, used = [], 0
        bucket.append(parameter)
        used += size
    if bucket:
        buckets.append(bucket)
    return buckets


class HandDDP(nn.Module):
    def __init__(self, module, bucket_cap_bytes=25 * 2**20):
        super().__init__()
        self.module = module
        broadcast_state(module)
        trainable = filter(lambda p: p.requires_grad, module.parameters())
        self._buckets = make_buckets(trainable, bucket_cap_bytes)
        self._index = {id(p): i for i, b in enumerate(self._buckets) for p in b}
        self._seen, self._next, self._skip = [0] * len(self._buckets), 0, 0
        for b in self._buckets:
            for p in b:
                p.register_post_accumulate_grad_hook(self._hook)

    def forward(self, *args, **kwargs):
        return self.module(*args, **kwargs)

    def _hook(self, p):
        if self._skip:
            return
        self._seen[self._index[id(p)]] += 1
        while self._next < len(self._buckets) and self._seen[self._next] == len(self._buckets[self._next]):
            self._reduce()

    @torch.no_grad()
    def _reduce(self):
        bucket = self._buckets[self._next]
        for p in bucket:
            if p.grad is None:
                p.grad = torch.zeros_like(p)
        flat = torch._utils._flatten_dense_tensors([p.grad for p in bucket])
        dist.all_reduce(flat)
        flat /= dist.get_world_size()
        for p, new in zip(bucket, torch._utils._unflatten_dense_tensors(flat, [p.grad for p in bucket])):
            p.grad.copy_(new)
        self._next += 1

    def finish(self):
        while self._next < len(self._buckets):
            self._reduce()
        self._seen, self._next = [0] * len(self._buckets), 0

    @contextmanager
    def no_sync(self):
        self._skip += 1
        try:
            yield
        finally:
            self._skip -= 1
