"""A thread of its own reduces what the hooks put into a queue."""

from contextlib import contextmanager
from functools import partial
from queue import Queue
from threading import Thread

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
        self.buckets = make_buckets((p for p in module.parameters() if p.requires_grad), bucket_cap_bytes)
        self.pending = [set(b) for b in self.buckets]
        self.next, self.queue, self.results = 0, Queue(), []
        Thread(target=self.work, daemon=True).start()
        for i, bucket in enumerate(self.buckets):
            for p in bucket:
                p.register_post_accumulate_grad_hook(partial(self.ready, i))

    def work(self):
        while True:
            flat = self.queue.get()
            dist.all_reduce(flat)
            self.queue.task_done()

    def forward(self, *args, **kwargs):
        return self.module(*args, **kwargs)

    def ready(self, i, p):
        if self.sync:
            self.pending[i].discard(p)
            while self.next < len(self.buckets) and not self.pending[self.next]:
                self.put()

    def put(self):
        flat = torch.cat([(torch.zeros_like(p) if p.grad is None else p.grad).flatten() for p in self.buckets[self.next]])
        self.results.append(flat)
        self.queue.put(flat)
        self.next += 1

    def finish(self):
        while self.next < len(self.buckets):
            self.put()
        self.queue.join()
        for bucket, flat in zip(self.buckets, self.results):
            for p, piece in zip(bucket, flat.split([p.numel() for p in bucket])):
                p.grad = piece.view_as(p) / dist.get_world_size()
        self.pending = [set(b) for b in self.buckets]
        self.next, self.results = 0, []

    @contextmanager
    def no_sync(self):
        self.sync = False
        try:
            yield
        finally:
            self.sync = True
