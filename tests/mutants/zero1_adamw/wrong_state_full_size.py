"""AdamW over everything, then each rank sends its slice.

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
        super().step(closure)
        n, rank = dist.get_world_size(self.pg), dist.get_rank(self.pg)
        for group in self.param_groups:
            for p in group["params"]:
                size = -(-p.numel() // n)
                flat = torch.zeros(size * n, dtype=p.dtype)
                flat[: p.numel()] = p.data.reshape(-1)
                mine = flat[rank * size : (rank + 1) * size].clone()
                dist.all_gather_into_tensor(flat, mine, group=self.pg)
                p.data.copy_(flat[: p.numel()].view(p.shape))
