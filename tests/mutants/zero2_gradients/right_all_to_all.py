"""Pieces are swapped all to all and summed at home; AdamW written out."""

import torch
import torch.distributed as dist


class Zero2:
    def __init__(self, model, lr=1e-3, betas=(0.9, 0.999), eps=1e-8, weight_decay=0.01, group=None):
        self.pg, self.options = group, (lr, betas, eps, weight_decay)
        self.n, self.rank = dist.get_world_size(group), dist.get_rank(group)
        self.model, self.t, self.grad = model, 0, None
        self.numel = sum(p.numel() for p in model.parameters())
        self.S = (self.numel + self.n - 1) // self.n
        self.m = self.v = None

    def to_flat(self, tensors):
        tensors = list(tensors)
        out = torch.zeros(self.n, self.S, dtype=tensors[0].dtype)
        out.view(-1)[: self.numel] = torch.cat([t.flatten() for t in tensors])
        return out

    def backward(self, loss):
        ps = list(self.model.parameters())
        grads = torch.autograd.grad(loss, ps, allow_unused=True)
        flat = self.to_flat(torch.zeros_like(p) if g is None else g for p, g in zip(ps, grads))
        arrived = torch.empty_like(flat)
        dist.all_to_all_single(arrived, flat, group=self.pg)
        mean = arrived.sum(0) / self.n
        self.grad = mean if self.grad is None else self.grad + mean

    def gradient_shard(self):
        return self.grad

    @torch.no_grad()
    def step(self):
        lr, (b1, b2), eps, wd = self.options
        self.t += 1
        w = self.to_flat(p.data for p in self.model.parameters())[self.rank].clone()
        if self.m is None:
            self.m, self.v = torch.zeros_like(w), torch.zeros_like(w)
        self.m += (1 - b1) * (self.grad - self.m)
        self.v += (1 - b2) * (self.grad**2 - self.v)
        w *= 1 - lr * wd
        w -= lr * self.m / (1 - b1**self.t) / ((self.v / (1 - b2**self.t)).sqrt() + eps)
        pieces = [torch.empty_like(w) for _ in range(self.n)]
        dist.all_gather(pieces, w, group=self.pg)
        whole, at = torch.cat(pieces), 0
        for p in self.model.parameters():
            p.copy_(whole[at : at + p.numel()].view_as(p))
            at += p.numel()

    def zero_grad(self):
        self.grad = None
