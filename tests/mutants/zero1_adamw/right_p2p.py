"""Each rank sends its pieces to every other one by send and recv."""

import torch
import torch.distributed as dist


class ShardedAdamW(torch.optim.Optimizer):
    """Each parameter's flat elements are cut into n pieces; rank r updates piece r of each."""

    def __init__(self, params, lr=1e-3, betas=(0.9, 0.999), eps=1e-8, weight_decay=0.01, group=None):
        super().__init__(params, dict(lr=lr, betas=betas, eps=eps, weight_decay=weight_decay))
        self.group = group
        self.rank, self.n = dist.get_rank(group), dist.get_world_size(group)

    def piece(self, tensor):
        size = -(-tensor.numel() // self.n)
        flat = torch.zeros(size * self.n, dtype=tensor.dtype)
        flat[: tensor.numel()] = tensor.reshape(-1)
        return flat[self.rank * size : (self.rank + 1) * size].clone()

    @torch.no_grad()
    def step(self, closure=None):
        for group in self.param_groups:
            beta1, beta2 = group["betas"]
            for p in group["params"]:
                if p.grad is None:
                    continue
                w, g = self.piece(p.data), self.piece(p.grad)
                state = self.state[p]
                if not state:
                    state["t"], state["m"], state["v"] = 0, torch.zeros_like(w), torch.zeros_like(w)
                m, v = state["m"], state["v"]
                state["t"] += 1
                t = state["t"]
                w.mul_(1 - group["lr"] * group["weight_decay"])
                m.mul_(beta1).add_(g, alpha=1 - beta1)
                v.mul_(beta2).addcmul_(g, g, value=1 - beta2)
                denominator = (v / (1 - beta2**t)).sqrt().add_(group["eps"])
                w.sub_(group["lr"] * (m / (1 - beta1**t)) / denominator)
                whole = torch.empty(self.n * w.numel(), dtype=w.dtype)
                size = w.numel()
                ops = []
                me = self.rank
                ranks = dist.get_process_group_ranks(self.group) if self.group else list(range(self.n))
                whole[me * size : (me + 1) * size] = w
                for other in range(self.n):
                    if other != me:
                        ops.append(dist.P2POp(dist.isend, w, ranks[other], group=self.group))
                        ops.append(dist.P2POp(dist.irecv, whole[other * size : (other + 1) * size], ranks[other], group=self.group))
                if ops:
                    for q in dist.batch_isend_irecv(ops):
                        q.wait()
                p.data.copy_(whole[: p.numel()].view(p.shape))
