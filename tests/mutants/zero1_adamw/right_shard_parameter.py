"""A flat shard with its own moments; what has no gradient is masked out; list all-gather; a spare flat buffer is kept."""

import torch
import torch.distributed as dist


class ShardedAdamW(torch.optim.Optimizer):
    def __init__(self, params, lr=1e-3, betas=(0.9, 0.999), eps=1e-8, weight_decay=0.01, group=None):
        super().__init__(params, {"lr": lr, "betas": betas, "eps": eps, "weight_decay": weight_decay})
        self.pg, self.rank, self.n = group, dist.get_rank(group), dist.get_world_size(group)
        self.buffers = []
        for g in self.param_groups:
            numel = sum(p.numel() for p in g["params"])
            size = (numel + self.n - 1) // self.n
            dtype = g["params"][0].dtype
            self.buffers.append(
                {
                    "flat": torch.zeros(size * self.n, dtype=dtype),
                    "m": torch.zeros(size, dtype=dtype),
                    "v": torch.zeros(size, dtype=dtype),
                    "counts": {},
                }
            )

    @torch.no_grad()
    def step(self, closure=None):
        for g, b in zip(self.param_groups, self.buffers):
            size, flat = b["m"].numel(), b["flat"]
            grad, has, count = torch.zeros_like(flat), torch.zeros(flat.numel(), dtype=torch.bool), torch.ones(flat.numel())
            at = 0
            for i, p in enumerate(g["params"]):
                here = slice(at, at + p.numel())
                flat[here] = p.data.flatten()
                if p.grad is not None:
                    b["counts"][i] = b["counts"].get(i, 0) + 1
                    grad[here], has[here], count[here] = p.grad.flatten(), True, b["counts"][i]
                at += p.numel()
            mine = slice(self.rank * size, (self.rank + 1) * size)
            w, gr, on, t = flat[mine].clone(), grad[mine], has[mine], count[mine].to(flat.dtype)
            b1, b2 = g["betas"]
            m = torch.where(on, b1 * b["m"] + (1 - b1) * gr, b["m"])
            v = torch.where(on, b2 * b["v"] + (1 - b2) * gr * gr, b["v"])
            b["m"], b["v"] = m, v
            new = w * (1 - g["lr"] * g["weight_decay"]) - g["lr"] * (m / (1 - b1**t)) / ((v / (1 - b2**t)).sqrt() + g["eps"])
            w = torch.where(on, new, w)
            pieces = [torch.empty_like(w) for _ in range(self.n)]
            dist.all_gather(pieces, w, group=self.pg)
            flat.copy_(torch.cat(pieces))
            at = 0
            for p in g["params"]:
                p.data.copy_(flat[at : at + p.numel()].view_as(p))
                at += p.numel()
