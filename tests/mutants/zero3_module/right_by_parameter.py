"""Each parameter is sharded by itself, along its first dim where that divides badly too; the next block is gathered ahead."""

import torch
import torch.distributed as dist
from torch import nn


class Piece:
    def __init__(self, p, group):
        self.p, self.group, self.shape = p, group, p.shape
        self.n, self.me = dist.get_world_size(group), dist.get_rank(group)
        self.size = -(-p.numel() // self.n)
        flat = torch.zeros(self.n * self.size, dtype=p.dtype)
        flat[: p.numel()] = p.data.reshape(-1)
        self.mine = flat[self.me * self.size : (self.me + 1) * self.size].clone()
        self.buffer = torch.zeros(self.n * self.size, dtype=p.dtype)
        p.data = self.buffer[: self.shape.numel()].view(self.shape)
        self.drop()

    def fetch(self):
        if self.buffer.untyped_storage().size() == 0:
            self.buffer.untyped_storage().resize_(self.buffer.numel() * self.buffer.element_size())
            return dist.all_gather_into_tensor(self.buffer, self.mine, group=self.group, async_op=True)

    def drop(self):
        self.buffer.untyped_storage().resize_(0)

    def reduce(self):
        g = torch.zeros(self.n * self.size, dtype=self.mine.dtype)
        if self.p.grad is not None:
            g[: self.shape.numel()] = self.p.grad.reshape(-1)
            self.p.grad = None
        out = torch.empty_like(self.mine)
        dist.reduce_scatter_tensor(out, g, group=self.group)
        self.mine.grad = out / self.n + (0 if self.mine.grad is None else self.mine.grad)


class Zero3(nn.Module):
    def __init__(self, blocks, lr=1e-3, betas=(0.9, 0.999), eps=1e-8, weight_decay=0.01, group=None):
        super().__init__()
        self.blocks = blocks
        self.pieces = [[Piece(p, group) for p in b.parameters()] for b in blocks]
        flat = [piece.mine for ps in self.pieces for piece in ps]
        self.opt = torch.optim.AdamW(flat, lr=lr, betas=betas, eps=eps, weight_decay=weight_decay)
        self.busy = []

    def fetch(self, i):
        return [work for piece in self.pieces[i] if (work := piece.fetch())] if 0 <= i < len(self.pieces) else []

    def forward(self, x):
        works = self.fetch(0)
        for i, block in enumerate(self.blocks):
            ahead = self.fetch(i + 1)
            for work in works:
                work.wait()
            works = ahead
            x = block(x)
            for piece in self.pieces[i]:
                piece.drop()
            if self.pieces[i] and x.requires_grad:
                x.register_hook(lambda g, i=i: self.enter(i))
        return x

    def enter(self, i):
        self.leave()
        for work in self.fetch(i):
            work.wait()
        self.busy = self.pieces[i]

    def leave(self):
        for piece in self.busy:
            piece.drop()
            piece.reduce()
        self.busy = []

    def backward(self, loss):
        loss.backward()
        self.leave()

    def step(self):
        self.opt.step()

    def zero_grad(self):
        self.opt.zero_grad()

    def gradient_shards(self):
        return [piece.mine.grad for ps in self.pieces for piece in ps]

    def full_state_dict(self):
        for i in range(len(self.pieces)):
            for work in self.fetch(i):
                work.wait()
        state = {key: value.detach().clone() for key, value in self.blocks.state_dict().items()}
        for ps in self.pieces:
            for piece in ps:
                piece.drop()
        return state
