"""Two dtypes in one flat tensor.

says: dtype
"""

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
        if bucket and (used + size > cap_bytes):
            buckets.append(bucket)
            bucket, used = [], 0
        bucket.append(parameter)
        used += size
    if bucket:
        buckets.append(bucket)
    return buckets


class Bucket:
    """Gradients of some parameters in one flat tensor, which travels as a whole."""

    def __init__(self, parameters):
        self.parameters = parameters
        first = parameters[0]
        numel = sum(parameter.numel() for parameter in parameters)
        self.flat = torch.zeros(numel, dtype=first.dtype, device=first.device)
        pieces = self.flat.split([parameter.numel() for parameter in parameters])
        self.views = [piece.view_as(parameter) for piece, parameter in zip(pieces, parameters)]
        self.missing = set(parameters)  # whose gradient has not come in this step
        self.work = None

    def collect(self):
        """Every gradient into its place in the flat tensor; zeros where there is none."""
        for parameter, view in zip(self.parameters, self.views):
            if parameter.grad is None:
                view.zero_()
            elif parameter.grad is not view:
                view.copy_(parameter.grad)
            parameter.grad = view

    def send(self):
        self.collect()
        self.flat /= dist.get_world_size()
        self.work = dist.all_reduce(self.flat, async_op=True)

    def finish(self):
        self.work.wait()
        self.work, self.missing = None, set(self.parameters)


class HandDDP(nn.Module):
    """A replica of ``module`` on every rank, with gradients that are averaged during backward."""

    def __init__(self, module: nn.Module, bucket_cap_bytes: int = 25 * 2**20):
        super().__init__()
        self.module = module
        broadcast_state(module)
        trained = [parameter for parameter in module.parameters() if parameter.requires_grad]
        self.buckets = [Bucket(parameters) for parameters in make_buckets(trained, bucket_cap_bytes)]
        self.sent = 0  # buckets on their way in this step: always the first ones
        self.syncs = True
        for bucket in self.buckets:
            for parameter in bucket.parameters:
                parameter.register_post_accumulate_grad_hook(lambda p, bucket=bucket: self.ready(p, bucket))

    def forward(self, *args, **kwargs):
        return self.module(*args, **kwargs)

    def ready(self, parameter, bucket):
        """A gradient is there: send the next bucket, and those behind it, as far as they are complete."""
        if not self.syncs:
            return
        bucket.missing.discard(parameter)
        while self.sent < len(self.buckets) and not self.buckets[self.sent].missing:
            self.buckets[self.sent].send()
            self.sent += 1

    def finish(self):
        """Send what is left, since some gradient never came, and wait for all."""
        for bucket in self.buckets[self.sent :]:
            bucket.send()
        for bucket in self.buckets:
            bucket.finish()
        self.sent = 0

    @contextmanager
    def no_sync(self):
        """Within it, gradients add up and stay where they are."""
        self.syncs = False
        try:
            yield
        finally:
            self.syncs = True
