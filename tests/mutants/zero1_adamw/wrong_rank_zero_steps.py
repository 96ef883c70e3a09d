"""Rank 0 updates everything and broadcasts it.

says: states, on every rank
"""

import torch
import torch.distributed as dist


class ShardedAdamW(torch.optim.AdamW):
    def __init__(self, params, lr=1e-3, betas=(0.9, 0.999), eps=1e-8, weight_decay=0.01, group=None):
        super().__init__(params, lr=lr, betas=betas, eps=eps, weight_decay=weight_decay)
        self.pg = group

    @torch.no_grad()
    def step(self, closure=None):
        if dist.get_rank(self.pg) == 0:
            super().step(closure)
        for group in self.param_groups:
            for p in group["params"]:
                dist.broadcast(p.data, group_src=0, group=self.pg)
