"""Functional collectives."""

import torch
import torch.distributed as dist


class Zero2:
    def __init__(self, model, lr=1e-3, betas=(0.9, 0.999), eps=1e-8, weight_decay=0.01, group=None):
        self.group = group
        self.rank, self.n = dist.get_rank(group), dist.get_world_size(group)
        self.params = list(model.parameters())
        self.size = -(-sum(p.numel() for p in self.params) // self.n)
        self.shard = self.flatten([p.data for p in self.params])[self.mine()].clone()
        self.optimizer = torch.optim.AdamW([self.shard], lr=lr, betas=betas, eps=eps, weight_decay=weight_decay)

    def mine(self):
        return slice(self.rank * self.size, (self.rank + 1) * self.size)

    def flatten(self, tensors):
        flat = torch.cat([t.reshape(-1) for t in tensors])
        return torch.cat([flat, flat.new_zeros(self.size * self.n - flat.numel())])

    def backward(self, loss):
        loss.backward()
        flat = self.flatten([torch.zeros_like(p) if p.grad is None else p.grad for p in self.params])
        for p in self.params:
            p.grad = None
        import torch.distributed._functional_collectives as fc
        part = fc.wait_tensor(fc.reduce_scatter_tensor(flat, "sum", 0, self.group or dist.group.WORLD)).clone()
        part /= self.n
        if self.shard.grad is None:
            self.shard.grad = part
        else:
            self.shard.grad += part

    def gradient_shard(self):
        return self.shard.grad

    def step(self):
        self.optimizer.step()
        flat = torch.empty(self.size * self.n, dtype=self.shard.dtype)
        dist.all_gather_into_tensor(flat, self.shard, group=self.group)
        at = 0
        for p in self.params:
            p.data.copy_(flat[at : at + p.numel()].view(p.shape))
            at += p.numel()

    def zero_grad(self):
        self.shard.grad = None
