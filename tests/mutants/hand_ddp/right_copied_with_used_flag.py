"""Gradients are copied into a flat tensor and back; a flag tells what nobody used."""

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
        self.module, self.n = module, dist.get_world_size()
        broadcast_state(module)
        self.params = [p for p in module.parameters() if p.requires_grad]
        self.buckets = make_buckets(self.params, bucket_cap_bytes)
        self.home = {p: i for i, bucket in enumerate(self.buckets) for p in bucket}
        self.enabled = True
        self.used = set()
        self.reset()
        for p in self.params:
            p.register_post_accumulate_grad_hook(self.hook)

    def reset(self):
        self.left = [len(bucket) for bucket in self.buckets]
        self.flying = []
        self.used.clear()

    def forward(self, *args, **kwargs):
        return self.module(*args, **kwargs)

    def hook(self, p):
        self.used.add(p)
        if not self.enabled:
            return
        self.left[self.home[p]] -= 1
        while len(self.flying) < len(self.buckets) and self.left[len(self.flying)] == 0:
            self.launch()

    def launch(self):
        bucket = self.buckets[len(self.flying)]
        flat = torch.cat([(torch.zeros_like(p) if p.grad is None else p.grad).reshape(-1) for p in bucket])
        self.flying.append((flat, dist.all_reduce(flat, async_op=True)))

    @torch.no_grad()
    def finish(self):
        while len(self.flying) < len(self.buckets):
            self.launch()
        flags = torch.tensor([p.grad is not None for p in self.params], dtype=torch.uint8)
        dist.all_reduce(flags, op=dist.ReduceOp.MAX)
        anywhere = dict(zip(self.params, flags.tolist()))
        for bucket, (flat, work) in zip(self.buckets, self.flying):
            work.wait()
            flat.div_(self.n)
            for p, piece in zip(bucket, flat.split([p.numel() for p in bucket])):
                if anywhere[p]:
                    p.grad = piece.view_as(p).clone()
        self.reset()

    @contextmanager
    def no_sync(self):
        before, self.enabled = self.enabled, False
        try:
            yield
        finally:
            self.enabled = before
