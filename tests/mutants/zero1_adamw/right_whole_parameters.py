"""Whole parameters are dealt out, the largest first; each owner broadcasts its own."""

import torch
import torch.distributed as dist


class ShardedAdamW(torch.optim.Optimizer):
    def __init__(self, params, lr=1e-3, betas=(0.9, 0.999), eps=1e-8, weight_decay=0.01, group=None):
        super().__init__(params, dict(lr=lr, betas=betas, eps=eps, weight_decay=weight_decay))
        self.process_group = group
        self.rank, self.n = dist.get_rank(group), dist.get_world_size(group)
        everything = [p for g in self.param_groups for p in g["params"]]
        load, self.owner = [0] * self.n, {}
        for p in sorted(everything, key=lambda p: -p.numel()):
            owner = load.index(min(load))
            self.owner[p] = owner
            load[owner] += p.numel()
        own = [{**g, "params": [p for p in g["params"] if self.owner[p] == self.rank]} for g in self.param_groups]
        dummy = torch.zeros(0)
        self.local = torch.optim.AdamW([g if g["params"] else {**g, "params": [dummy]} for g in own])

    def step(self, closure=None):
        for outer, inner in zip(self.param_groups, self.local.param_groups):
            inner.update({k: v for k, v in outer.items() if k != "params"})
        self.local.step()
        for p, owner in self.owner.items():
            dist.broadcast(p.data, group=self.process_group, group_src=owner)
