"""The place in the group is taken for a global rank.

says: not part of group
"""

import torch
import torch.distributed as dist


class ShardedAdamW(torch.optim.Optimizer):
    def __init__(self, params, lr=1e-3, betas=(0.9, 0.999), eps=1e-8, weight_decay=0.01, group=None):
        super().__init__(params, dict(lr=lr, betas=betas, eps=eps, weight_decay=weight_decay))
        self.group, self.rank, self.n = group, dist.get_rank(group), dist.get_world_size(group)
        self.flats, inner = [], []
        for settings in self.param_groups:
            ps = settings["params"]
            numel = sum(p.numel() for p in ps)
            size = -(-numel // self.n)
            flat = ps[0].new_zeros(size * self.n).detach()
            low, high, start, mine = self.rank * size, (self.rank + 1) * size, 0, []
            for p in ps:
                view = flat[start : start + p.numel()].view(p.shape)
                view.copy_(p.data)
                p.data = view
                a, b = max(low, start), min(high, start + p.numel())
                if a < b:
                    mine.append((p, flat[a:b], slice(a - start, b - start)))
                start += p.numel()
            self.flats.append((flat, mine))
            inner.append({"params": [part for _, part, _ in mine]})
        self.inner = torch.optim.AdamW(inner)

    @torch.no_grad()
    def step(self, closure=None):
        for outer, own, (_, mine) in zip(self.param_groups, self.inner.param_groups, self.flats):
            for key in ("lr", "betas", "eps", "weight_decay"):
                own[key] = outer[key]
            for p, part, where in mine:
                part.grad = None if p.grad is None else p.grad.reshape(-1)[where]
        self.inner.step()
        self.inner.zero_grad()
        for flat, _ in self.flats:
            for owner, piece in enumerate(flat.view(self.n, -1)):
                source = owner
                dist.broadcast(piece, source, group=self.group)
