"""All-gather as an autograd.Function whose backward is the reduce-scatter; weights are swapped in as plain tensors."""

import torch
import torch.distributed as dist
from torch import nn


class Gather(torch.autograd.Function):
    """Forward: the whole from all shards. Backward: each rank's shard of the mean gradient."""

    @staticmethod
    def forward(ctx, shard, unit):
        ctx.unit = unit
        return unit.collect()

    @staticmethod
    def backward(ctx, grad):
        unit = ctx.unit
        unit.whole.untyped_storage().resize_(0)
        part = torch.empty_like(unit.shard)
        dist.reduce_scatter_tensor(part, grad.contiguous(), group=unit.group)
        return part / unit.n, None


class Unit:
    def __init__(self, block, group):
        self.block, self.group = block, group
        self.n, self.me = dist.get_world_size(group), dist.get_rank(group)
        self.places, known = [], {}
        for module in block.modules():
            for name, p in list(module._parameters.items()):
                if p is not None:
                    known.setdefault(p, len(known))
                    self.places.append((module, name, known[p]))
        self.shapes = [p.shape for p in known]
        flat = torch.cat([p.detach().reshape(-1) for p in known])
        size = -(-flat.numel() // self.n)
        flat = torch.cat([flat, flat.new_zeros(size * self.n - flat.numel())])
        self.shard = nn.Parameter(flat.view(self.n, -1)[self.me].clone())
        self.whole = None
        self.keys = [key for key in block.state_dict()]
        for module, name, _ in self.places:
            del module._parameters[name]

    def collect(self):
        whole = torch.empty(self.n * self.shard.numel(), dtype=self.shard.dtype)
        dist.all_gather_into_tensor(whole, self.shard.data, group=self.group)
        self.whole = whole.detach()
        return whole

    def refill(self):
        if self.whole.untyped_storage().nbytes() == 0:
            self.whole.untyped_storage().resize_(self.whole.numel() * self.whole.element_size())
            dist.all_gather_into_tensor(self.whole, self.shard.data, group=self.group)

    def put(self, whole):
        views, at = [], 0
        for shape in self.shapes:
            views.append(whole[at : at + shape.numel()].view(shape))
            at += shape.numel()
        for module, name, which in self.places:
            setattr(module, name, views[which])

    def run(self, x):
        self.put(Gather.apply(self.shard, self))
        out = self.block(x)
        self.whole.untyped_storage().resize_(0)
        if out.requires_grad:
            out.register_hook(lambda g: self.refill())
        return out


class Zero3(nn.Module):
    def __init__(self, blocks, lr=1e-3, betas=(0.9, 0.999), eps=1e-8, weight_decay=0.01, group=None):
        super().__init__()
        self.keys = list(blocks.state_dict())
        self.blocks = list(blocks)
        self.units = [Unit(b, group) if any(True for _ in b.parameters()) else None for b in blocks]
        shards = [u.shard for u in self.units if u]
        self.opt = torch.optim.AdamW(shards, lr=lr, betas=betas, eps=eps, weight_decay=weight_decay)

    def forward(self, x):
        for block, unit in zip(self.blocks, self.units):
            x = block(x) if unit is None else unit.run(x)
        return x

    def backward(self, loss):
        loss.backward()

    def step(self):
        self.opt.step()

    def zero_grad(self):
        self.opt.zero_grad()

    def gradient_shards(self):
        return [u.shard.grad for u in self.units if u]

    def full_state_dict(self):
        state = {}
        for i, (block, unit) in enumerate(zip(self.blocks, self.units)):
            for key, value in block.state_dict().items():
                state[f"{i}.{key}"] = value.clone()
            if unit:
                unit.put(unit.collect())
                for path, module in block.named_modules():
                    for m, name, _ in unit.places:
                        if m is module:
                            state[f"{i}.{path}.{name}" if path else f"{i}.{name}"] = getattr(m, name).detach().clone()
                unit.whole = None
                for m, name, _ in unit.places:
                    setattr(m, name, None)
        return {key: state[key] for key in self.keys}
