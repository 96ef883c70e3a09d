"""A block's gradients are reduced before its backward has run.

says: missing
"""

import torch
import torch.distributed as dist
from torch import nn


class Shard:
    """One block's weights: a flat shard that stays, a whole that comes and goes."""

    def __init__(self, block, group):
        self.group, self.n, self.rank = group, dist.get_world_size(group), dist.get_rank(group)
        self.params = list(block.parameters())
        self.shapes = [p.shape for p in self.params]
        self.numel = sum(p.numel() for p in self.params)
        self.size = -(-self.numel // self.n)
        flat = self.flatten([p.data for p in self.params])
        self.mine = nn.Parameter(flat[self.rank * self.size : (self.rank + 1) * self.size].clone())
        self.whole = None
        self.free()

    def flatten(self, tensors):
        flat = torch.cat([t.reshape(-1) for t in tensors])
        return torch.cat([flat, flat.new_zeros(self.size * self.n - self.numel)])

    def gather(self):
        self.whole = torch.empty(self.size * self.n, dtype=self.mine.dtype)
        dist.all_gather_into_tensor(self.whole, self.mine.data, group=self.group)
        at = 0
        for p, shape in zip(self.params, self.shapes):
            p.data = self.whole[at : at + shape.numel()].view(shape)
            at += shape.numel()

    def free(self):
        self.whole = None
        for p in self.params:
            p.data = torch.empty(0, dtype=self.mine.dtype)

    def pack(self, t):
        if self.whole is None or t.untyped_storage().data_ptr() != self.whole.untyped_storage().data_ptr():
            return t
        return (t.size(), t.stride(), t.storage_offset())

    def unpack(self, note):
        return note if isinstance(note, torch.Tensor) else self.whole.as_strided(*note)

    def reduce(self):
        flat = self.flatten([torch.zeros(s, dtype=self.mine.dtype) if p.grad is None else p.grad for p, s in zip(self.params, self.shapes)])
        for p in self.params:
            p.grad = None
        part = torch.empty(self.size, dtype=flat.dtype)
        dist.reduce_scatter_tensor(part, flat, group=self.group)
        part /= self.n
        if self.mine.grad is None:
            self.mine.grad = part
        else:
            self.mine.grad += part


class Zero3(nn.Module):
    def __init__(self, blocks, lr=1e-3, betas=(0.9, 0.999), eps=1e-8, weight_decay=0.01, group=None):
        super().__init__()
        self.blocks = blocks
        self.shards = [Shard(b, group) if list(b.parameters()) else None for b in blocks]
        self.used = [s for s in self.shards if s]
        self.adam = torch.optim.AdamW([s.mine for s in self.used], lr=lr, betas=betas, eps=eps, weight_decay=weight_decay)
        self.open = None

    def forward(self, x):
        for block, shard in zip(self.blocks, self.shards):
            if shard is None:
                x = block(x)
                continue
            shard.gather()
            with torch.autograd.graph.saved_tensors_hooks(shard.pack, shard.unpack):
                x = block(x)
            shard.free()
            if x.requires_grad:
                x.register_hook(lambda grad, shard=shard: self.begin(shard))
        return x

    def begin(self, shard):
        shard.gather()
        shard.reduce()
        self.open = shard

    def end(self):
        if self.open is not None:
            self.open.free()
            self.open.reduce()
            self.open = None

    def backward(self, loss):
        loss.backward()
        self.end()

    def step(self):
        self.adam.step()

    def zero_grad(self):
        self.adam.zero_grad()

    def gradient_shards(self):
        return [s.mine.grad for s in self.used]

    def full_state_dict(self):
        state = {}
        for name, (block, shard) in zip(dict(self.blocks.named_children()), zip(self.blocks, self.shards)):
            if shard:
                shard.gather()
            for key, value in block.state_dict().items():
                state[f"{name}.{key}"] = value.clone()
            if shard:
                shard.free()
        return state
