"""Each bucket is reduce-scattered during backward, gathered in finish."""

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
        self.n, self.rank = dist.get_world_size(), dist.get_rank()
        broadcast_state(module)
        self.buckets = make_buckets((p for p in module.parameters() if p.requires_grad), bucket_cap_bytes)
        self.quiet = False
        self.todo, self.waiting, self.going = 0, [set(b) for b in self.buckets], []
        for number, bucket in enumerate(self.buckets):
            for p in bucket:
                p.register_post_accumulate_grad_hook(lambda p, number=number: self.arrived(p, number))

    def forward(self, *args, **kwargs):
        return self.module(*args, **kwargs)

    def arrived(self, p, number):
        if self.quiet:
            return
        self.waiting[number] -= {p}
        while self.todo < len(self.buckets) and not self.waiting[self.todo]:
            self.go()

    def go(self):
        bucket = self.buckets[self.todo]
        flat = torch.cat([torch.zeros(p.numel(), dtype=p.dtype) if p.grad is None else p.grad.view(-1) for p in bucket])
        flat = torch.cat([flat, flat.new_zeros(-len(flat) % self.n)])
        mine = flat.new_empty(len(flat) // self.n)
        self.going.append((bucket, flat, mine, dist.reduce_scatter_tensor(mine, flat, async_op=True)))
        self.todo += 1

    def finish(self):
        while self.todo < len(self.buckets):
            self.go()
        for bucket, flat, mine, work in self.going:
            work.wait()
            dist.all_gather_into_tensor(flat, mine / self.n)
            start = 0
            for p in bucket:
                new = flat[start : start + p.numel()].view_as(p)
                start += p.numel()
                if p.grad is None:
                    p.grad = new.clone()
                else:
                    p.grad.copy_(new)
        self.todo, self.waiting, self.going = 0, [set(b) for b in self.buckets], []

    @contextmanager
    def no_sync(self):
        self.quiet = True
        yield
        self.quiet = False
