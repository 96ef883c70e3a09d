"""All broadcasts in flight, then waited for."""

import itertools

import torch.distributed as dist


def broadcast_state(model):
    works = [dist.broadcast(t.detach(), 0, async_op=True) for t in itertools.chain(model.parameters(), model.buffers())]
    for work in works:
        work.wait()
