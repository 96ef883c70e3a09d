"""Blocks are templates without memory; each use fills a copy, and backward computes again."""

import torch
import torch.distributed as dist
from torch import nn

import copy


class Run(torch.autograd.Function):
    @staticmethod
    def forward(ctx, dummy, x, unit):
        ctx.unit = unit
        ctx.save_for_backward(x)
        ctx.rng = torch.get_rng_state()
        m = unit.materialise()
        with torch.no_grad():
            return m(x)

    @staticmethod
    def backward(ctx, g):
        (x,) = ctx.saved_tensors
        xx = x.detach()
        if xx.is_floating_point():
            xx.requires_grad_(True)
        m = ctx.unit.materialise()
        with torch.enable_grad():
            y = m(xx)
            y.backward(g)
        ctx.unit.reduce(m)
        return None, (xx.grad if xx.is_floating_point() else None), None


class Unit:
    def __init__(self, block, group):
        self.group, self.W, self.R = group, dist.get_world_size(group), dist.get_rank(group)
        ps = list(block.parameters())
        self.template = copy.deepcopy(block).to("meta") if False else block
        self.sizes = [p.shape for p in ps]
        flat = torch.cat([p.detach().flatten() for p in ps])
        self.S = -(-len(flat) // self.W)
        flat = torch.nn.functional.pad(flat, (0, self.S * self.W - len(flat)))
        self.mine = flat[self.R * self.S : (self.R + 1) * self.S].clone()
        for p in ps:
            p.data = p.data.new_empty(0)

    def materialise(self):
        m = copy.deepcopy(self.template)
        whole = self.mine.new_empty(self.S * self.W)
        dist.all_gather_into_tensor(whole, self.mine, group=self.group)
        o = 0
        for p, s in zip(m.parameters(), self.sizes):
            p.data = whole[o : o + s.numel()].view(s)
            o += s.numel()
        return m

    def reduce(self, m):
        g = torch.cat([(torch.zeros(s, dtype=self.mine.dtype) if p.grad is None else p.grad).flatten() for p, s in zip(m.parameters(), self.sizes)])
        g = torch.nn.functional.pad(g, (0, self.S * self.W - len(g)))
        out = torch.empty_like(self.mine)
        dist.reduce_scatter_tensor(out, g, group=self.group)
        out /= self.W
        self.mine.grad = out if self.mine.grad is None else self.mine.grad + out


class Zero3(nn.Module):
    def __init__(self, blocks, lr=1e-3, betas=(0.9, 0.999), eps=1e-8, weight_decay=0.01, group=None):
        super().__init__()
        self.seq = [(b, Unit(b, group) if len(list(b.parameters())) else None) for b in blocks]
        self.dummy = torch.zeros((), requires_grad=True)
        self.opt = torch.optim.AdamW([u.mine for _, u in self.seq if u], lr=lr, betas=betas, eps=eps, weight_decay=weight_decay)

    def forward(self, x):
        for b, u in self.seq:
            x = Run.apply(self.dummy, x, u) if u else b(x)
        return x

    def backward(self, loss):
        loss.backward()

    def gradient_shards(self):
        return [u.mine.grad if u else None for _, u in self.seq]

    def step(self):
        self.opt.step()

    def zero_grad(self):
        self.opt.zero_grad()

    def full_state_dict(self):
        out = {}
        for i, (b, u) in enumerate(self.seq):
            m = u.materialise() if u else b
            for k, v in m.state_dict().items():
                out[f"{i}.{k}"] = v.detach().clone()
        return out
