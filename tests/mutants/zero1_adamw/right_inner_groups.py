"""param_groups are those of an inner AdamW over shards."""

import torch
import torch.distributed as dist


class ShardedAdamW(torch.optim.Optimizer):
    def __init__(self, params, lr=1e-3, betas=(0.9, 0.999), eps=1e-8, weight_decay=0.01, group=None):
        super().__init__(params, dict(lr=lr, betas=betas, eps=eps, weight_decay=weight_decay))
        self.dist_group = group
        self.world = dist.get_world_size(group)
        self.me = dist.get_rank(group)
        self.real = [list(g["params"]) for g in self.param_groups]
        inner = []
        for g in self.param_groups:
            shards = []
            for p in g["params"]:
                shards.append(torch.nn.Parameter(self.cut(p.data)))
            inner.append({**g, "params": shards})
        self.inner = torch.optim.AdamW(inner, foreach=False)
        self.param_groups = self.inner.param_groups

    def cut(self, t):
        pad = -t.numel() % self.world
        flat = torch.nn.functional.pad(t.reshape(-1), (0, pad))
        return flat.chunk(self.world)[self.me].clone() if flat.numel() else flat

    def step(self, closure=None):
        for reals, g in zip(self.real, self.inner.param_groups):
            for p, s in zip(reals, g["params"]):
                s.grad = None if p.grad is None else self.cut(p.grad)
        self.inner.step()
        for reals, g in zip(self.real, self.inner.param_groups):
            for p, s in zip(reals, g["params"]):
                parts = [torch.empty_like(s.data) for _ in range(self.world)]
                dist.all_gather(parts, s.data, group=self.dist_group)
                p.data.copy_(torch.cat(parts)[: p.numel()].view_as(p))
