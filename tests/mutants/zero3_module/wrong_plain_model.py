"""The whole model on every rank, gradients all-reduced: no sharding at all.

says: still hold | stay alive | whole
"""

import torch
import torch.distributed as dist
from torch import nn


class Zero3(nn.Module):
    def __init__(self, blocks, lr=1e-3, betas=(0.9, 0.999), eps=1e-8, weight_decay=0.01, group=None):
        super().__init__()
        self.blocks, self.group = blocks, group
        self.n, self.r = dist.get_world_size(group), dist.get_rank(group)
        self.opt = torch.optim.AdamW(blocks.parameters(), lr=lr, betas=betas, eps=eps, weight_decay=weight_decay)
        self.sums = None

    def forward(self, x):
        return self.blocks(x)

    def backward(self, loss):
        loss.backward()

    def averaged(self):
        out = []
        for p in self.blocks.parameters():
            g = torch.zeros_like(p) if p.grad is None else p.grad.clone()
            dist.all_reduce(g, group=self.group)
            out.append(g / self.n)
        return out

    def gradient_shards(self):
        out = []
        for g in self.averaged():
            size = -(-g.numel() // self.n)
            flat = torch.cat([g.reshape(-1), g.new_zeros(size * self.n - g.numel())])
            out.append(flat.view(self.n, -1)[self.r])
        return out

    def step(self):
        for p, g in zip(self.blocks.parameters(), self.averaged()):
            p.grad = g
        self.opt.step()

    def zero_grad(self):
        self.opt.zero_grad()

    def full_state_dict(self):
        return dict(self.blocks.state_dict())
