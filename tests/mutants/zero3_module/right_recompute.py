"""A custom autograd.Function runs each block without a graph, and again with one in backward."""

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


class RunBlock(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, trigger, block, shard):
        ctx.block, ctx.shard = block, shard
        ctx.save_for_backward(x)
        shard.gather()
        with torch.no_grad():
            out = block(x)
        shard.free()
        return out

    @staticmethod
    def backward(ctx, grad):
        (x,) = ctx.saved_tensors
        x = x.detach()
        if x.is_floating_point():
            x.requires_grad_()
        ctx.shard.gather()
        with torch.enable_grad():
            out = ctx.block(x)
        torch.autograd.backward(out, grad)
        del out
        ctx.shard.free()
        ctx.shard.reduce()
        return (x.grad if x.is_floating_point() else None), None, None, None


class Zero3(nn.Module):
    def __init__(self, blocks, lr=1e-3, betas=(0.9, 0.999), eps=1e-8, weight_decay=0.01, group=None):
        super().__init__()
        self.blocks = blocks
        self.shards = [Shard(b, group) if list(b.parameters()) else None for b in blocks]
        self.trigger = torch.zeros(1, requires_grad=True)
        self.adam = torch.optim.AdamW([s.mine for s in self.shards if s], lr=lr, betas=betas, eps=eps, weight_decay=weight_decay)

    def forward(self, x):
        for block, shard in zip(self.blocks, self.shards):
            x = block(x) if shard is None else RunBlock.apply(x, self.trigger, block, shard)
        return x

    def backward(self, loss):
        loss.backward()

    def step(self):
        self.adam.step()

    def zero_grad(self):
        self.adam.zero_grad(set_to_none=False)

    def gradient_shards(self):
        return [s.mine.grad if s else torch.zeros(0) for s in self.shards]

    def full_state_dict(self):
        state = {}
        for i, (block, shard) in enumerate(zip(self.blocks, self.shards)):
            if shard is not None:
                shard.gather()
            state.update({f"{i}.{k}": v.detach().clone() for k, v in block.state_dict().items()})
            if shard is not None:
                shard.free()
        return state
