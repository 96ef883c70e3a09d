"""Hooks on the tensors, before autograd adds up: sum and new gradient go into the bucket."""

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
        self.module, self.sync = module, True
        broadcast_state(module)
        self.buckets = make_buckets([p for p in module.parameters() if p.requires_grad], bucket_cap_bytes)
        self.new = {}
        self.works = []
        for bucket in self.buckets:
            for p in bucket:
                p.register_hook(lambda g, p=p: self.incoming(p, g))

    def forward(self, *args, **kwargs):
        return self.module(*args, **kwargs)

    def incoming(self, p, g):
        if self.sync:
            self.new[p] = g.clone() if p.grad is None else p.grad + g
            while len(self.works) < len(self.buckets) and all(q in self.new for q in self.buckets[len(self.works)]):
                self.send()

    def send(self):
        bucket = self.buckets[len(self.works)]
        flat = torch.cat([self.value(p).reshape(-1) for p in bucket])
        self.works.append((flat, dist.all_reduce(flat, async_op=True)))

    def value(self, p):
        if p in self.new:
            return self.new[p]
        return torch.zeros_like(p) if p.grad is None else p.grad

    def finish(self):
        while len(self.works) < len(self.buckets):
            self.send()
        for bucket, (flat, work) in zip(self.buckets, self.works):
            work.wait()
            for p, piece in zip(bucket, (flat / dist.get_world_size()).split([p.numel() for p in bucket])):
                p.grad = piece.reshape(p.shape)
        self.works, self.new = [], {}

    @contextmanager
    def no_sync(self):
        self.sync = False
        try:
            yield
        finally:
            self.sync = True
