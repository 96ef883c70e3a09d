"""Hooks on the AccumulateGrad nodes; one open bucket per dtype; divided before."""

import contextlib

import torch
import torch.distributed as dist
from torch import nn


class HandDDP(nn.Module):
    def __init__(self, module, bucket_cap_bytes=25 * 2**20):
        super().__init__()
        self.module = module
        with torch.no_grad():
            for t in [*module.parameters(), *module.buffers()]:
                dist.broadcast(t, 0)
        self.plan, fill = [], {}
        for p in [p for p in module.parameters() if p.requires_grad][::-1]:
            index, room = fill.get(p.dtype, (None, -1))
            if room < p.nbytes:
                index, room = len(self.plan), bucket_cap_bytes
                self.plan.append([])
            self.plan[index].append(p)
            fill[p.dtype] = (index, room - p.nbytes)
        self.nodes, self.where = [], {}
        for index, bucket in enumerate(self.plan):
            for p in bucket:
                node = p.expand_as(p).grad_fn.next_functions[0][0]
                node.register_hook(lambda *_, index=index: self.on_grad(index))
                self.nodes.append(node)
        self.on = True
        self.start()

    def start(self):
        self.counts = [0] * len(self.plan)
        self.works = []

    def forward(self, *inputs, **keywords):
        return self.module(*inputs, **keywords)

    def on_grad(self, index):
        if self.on:
            self.counts[index] += 1
            self.pump(False)

    def pump(self, rest):
        while len(self.works) < len(self.plan):
            bucket = self.plan[len(self.works)]
            if not rest and self.counts[len(self.works)] < len(bucket):
                return
            parts = [torch.zeros_like(p) if p.grad is None else p.grad for p in bucket]
            flat = torch.cat([part.flatten() for part in parts]).div(dist.get_world_size())
            self.works.append((dist.all_reduce(flat, async_op=True), flat, bucket))

    def finish(self):
        self.pump(True)
        for work, flat, bucket in self.works:
            work.wait()
            at = 0
            for p in bucket:
                p.grad = flat[at : at + p.numel()].view(p.shape)
                at += p.numel()
        self.start()

    def no_sync(self):
        @contextlib.contextmanager
        def off():
            self.on = False
            yield
            self.on = True

        return off()
