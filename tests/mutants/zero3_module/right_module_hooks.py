"""Module hooks open and close storages; the model is called as a whole."""

import torch
import torch.distributed as dist
from torch import nn


class Zero3(nn.Module):
    """Forward/backward module hooks, storages resized, grads caught by post-accumulate hooks, flushed at block ends."""
    def __init__(self, blocks, lr=1e-3, betas=(0.9, 0.999), eps=1e-8, weight_decay=0.01, group=None):
        super().__init__()
        self.blocks, self.group = blocks, group
        self.W, self.R = dist.get_world_size(group), dist.get_rank(group)
        self.info = {}
        shards = []
        for b in blocks:
            ps = list(b.parameters())
            if not ps:
                continue
            n = sum(p.numel() for p in ps)
            S = -(-n // self.W)
            full = ps[0].data.new_zeros(S * self.W)
            o = 0
            for p in ps:
                full[o : o + p.numel()] = p.data.reshape(-1)
                p.data = full[o : o + p.numel()].view(p.shape)
                o += p.numel()
            mine = full[self.R * S : (self.R + 1) * S].clone()
            self.info[b] = (ps, full, mine, S, full.numel() * full.element_size())
            full.untyped_storage().resize_(0)
            shards.append(mine)
            b.register_forward_pre_hook(lambda m, a: self.open(m))
            b.register_forward_hook(lambda m, a, out: self.close_and_watch(m, out))
        self.opt = torch.optim.AdamW(shards, lr=lr, betas=betas, eps=eps, weight_decay=weight_decay)
        self.pending = []

    def open(self, m):
        ps, full, mine, S, nbytes = self.info[m]
        if full.untyped_storage().nbytes() == 0:
            full.untyped_storage().resize_(nbytes)
            parts = list(full.chunk(self.W))
            dist.all_gather(parts, mine, group=self.group)

    def close_and_watch(self, m, out):
        self.info[m][1].untyped_storage().resize_(0)
        if out.requires_grad:
            out.register_hook(lambda g: self.start(m))

    def start(self, m):
        while self.pending:
            self.done(self.pending.pop())
        self.open(m)
        self.pending.append(m)

    def done(self, m):
        ps, full, mine, S, nbytes = self.info[m]
        full.untyped_storage().resize_(0)
        g = mine.new_zeros(S * self.W)
        o = 0
        for p, shape in zip(ps, [p.shape for p in ps]):
            if p.grad is not None:
                g[o : o + p.numel()] = p.grad.reshape(-1)
                p.grad = None
            o += p.numel()
        out = torch.empty_like(mine)
        dist.reduce_scatter_tensor(out, g, group=self.group, op=dist.ReduceOp.SUM)
        out /= self.W
        mine.grad = out if mine.grad is None else mine.grad + out

    def forward(self, x):
        return self.blocks(x)

    def backward(self, loss):
        loss.backward()
        while self.pending:
            self.done(self.pending.pop())

    def gradient_shards(self):
        return [i[2].grad for i in self.info.values()]

    def step(self):
        self.opt.step()

    def zero_grad(self):
        self.opt.zero_grad(set_to_none=False)

    def full_state_dict(self):
        sd = {}
        for i, b in enumerate(self.blocks):
            if b in self.info:
                self.open(b)
            sd.update({f"{i}.{k}": v.detach().clone() for k, v in b.state_dict().items()})
            if b in self.info:
                self.info[b][1].untyped_storage().resize_(0)
        return sd
