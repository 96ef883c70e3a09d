"""The whole's memory is resized to nothing and back; module hooks open and close each block; the last block stays open."""

import torch
import torch.distributed as dist
from torch import nn


class Unit:
    def __init__(self, block, group):
        self.params, self.group = list(block.parameters()), group
        self.n, self.me = dist.get_world_size(group), dist.get_rank(group)
        total = sum(p.numel() for p in self.params)
        self.per_rank = -(-total // self.n)
        self.full = torch.zeros(self.per_rank * self.n, dtype=self.params[0].dtype)
        at = 0
        for p in self.params:
            view = self.full[at : at + p.numel()].view(p.shape)
            view.copy_(p.data)
            p.data = view
            at += p.numel()
        self.shard = self.full.view(self.n, -1)[self.me].clone()
        self.bytes = self.full.untyped_storage().nbytes()
        self.close()

    def open(self, *_):
        if self.full.untyped_storage().nbytes() == 0:
            self.full.untyped_storage().resize_(self.bytes)
            dist.all_gather_into_tensor(self.full, self.shard, group=self.group)

    def close(self, *_):
        self.full.untyped_storage().resize_(0)

    def reduce(self):
        pieces = []
        for p in self.params:
            pieces.append((torch.zeros(p.shape, dtype=p.dtype) if p.grad is None else p.grad).reshape(-1))
            p.grad = None
        rest = self.per_rank * self.n - sum(q.numel() for q in pieces)
        flat = torch.cat([*pieces, torch.zeros(rest, dtype=self.shard.dtype)])
        del pieces
        out = torch.empty_like(self.shard)
        dist.reduce_scatter(out, list(flat.view(self.n, -1)), group=self.group)
        out.div_(self.n)
        self.shard.grad = out if self.shard.grad is None else self.shard.grad.add_(out)


class Zero3(nn.Module):
    def __init__(self, blocks, lr=1e-3, betas=(0.9, 0.999), eps=1e-8, weight_decay=0.01, group=None):
        super().__init__()
        self.model = blocks
        self.units = [Unit(b, group) for b in blocks if any(True for _ in b.parameters())]
        self.ready = []
        for b in blocks:
            unit = next((u for u in self.units if any(u.params[0] is p for p in b.parameters())), None)
            if unit:
                b.register_forward_pre_hook(lambda m, args, unit=unit: unit.open())
                b.register_forward_hook(lambda m, args, out, unit=unit: self.after(unit, out))
        self.optimizer = torch.optim.AdamW([u.shard for u in self.units], lr=lr, betas=betas, eps=eps, weight_decay=weight_decay)

    def after(self, unit, out):
        if unit is not self.units[-1] or not out.requires_grad:
            unit.close()
        if out.requires_grad:
            out.register_hook(lambda g: self.before_backward(unit))
        return None

    def before_backward(self, unit):
        self.flush()
        unit.open()
        self.ready.append(unit)

    def flush(self):
        for unit in self.ready:
            unit.close()
            unit.reduce()
        self.ready.clear()

    def forward(self, x):
        for unit in self.units:
            unit.close()
        return self.model(x)

    def backward(self, loss):
        loss.backward()
        self.flush()

    def step(self):
        self.optimizer.step()

    def zero_grad(self):
        for unit in self.units:
            unit.shard.grad = None

    def gradient_shards(self):
        return [u.shard.grad for u in self.units]

    def full_state_dict(self):
        for unit in self.units:
            unit.open()
        state = {k: v.detach().clone() for k, v in self.model.state_dict().items()}
        for unit in self.units:
            unit.close()
        return state
