"""Hooks take each gradient as it comes; pieces go to their owners; the shard is allocated once and zeroed."""

import torch
import torch.distributed as dist


class Zero2:
    def __init__(self, model, lr=1e-3, betas=(0.9, 0.999), eps=1e-8, weight_decay=0.01, group=None):
        self.group, self.n, self.me = group, dist.get_world_size(group), dist.get_rank(group)
        self.params, self.begin, at = list(model.parameters()), {}, 0
        for p in self.params:
            self.begin[p] = at
            at += p.numel()
            p.register_post_accumulate_grad_hook(self.arrived)
        self.S = -(-at // self.n)
        flat = torch.zeros(self.S * self.n, dtype=self.params[0].dtype)
        for p in self.params:
            view = flat[self.begin[p] : self.begin[p] + p.numel()].view(p.shape)
            view.copy_(p.data)
            p.data = view
        self.flat = flat
        self.own = torch.nn.Parameter(flat[self.me * self.S : (self.me + 1) * self.S])
        self.own.grad = torch.zeros_like(self.own)
        self.adam = torch.optim.AdamW([self.own], lr=lr, betas=betas, eps=eps, weight_decay=weight_decay)
        self.waiting = {}

    def arrived(self, p):
        self.waiting[p] = p.grad
        p.grad = None

    def backward(self, loss):
        loss.backward()
        for p in reversed(self.params):
            grad = self.waiting.pop(p, None)
            grad = torch.zeros(p.numel(), dtype=p.dtype) if grad is None else grad.reshape(-1) / self.n
            at = self.begin[p]
            for owner in range(self.n):
                a, b = max(at, owner * self.S), min(at + p.numel(), (owner + 1) * self.S)
                if a < b:
                    piece = grad[a - at : b - at].clone()
                    dist.reduce(piece, group_dst=owner, group=self.group)
                    if owner == self.me:
                        self.own.grad[a - owner * self.S : b - owner * self.S] += piece

    def gradient_shard(self):
        return self.own.grad

    def step(self):
        self.adam.step()
        for owner in range(self.n):
            dist.broadcast(self.flat[owner * self.S : (owner + 1) * self.S], group_src=owner, group=self.group)

    def zero_grad(self):
        self.own.grad.zero_()
