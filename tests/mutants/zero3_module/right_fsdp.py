"""torch's own fully_shard, on every block and on the root; shards by parameter, along its first dim."""

import torch
import torch.distributed as dist
from torch import nn


from torch.distributed.fsdp import fully_shard
from torch.distributed.device_mesh import init_device_mesh, DeviceMesh


class Zero3(nn.Module):
    def __init__(self, blocks, lr=1e-3, betas=(0.9, 0.999), eps=1e-8, weight_decay=0.01, group=None):
        super().__init__()
        mesh = DeviceMesh.from_group(group, "cpu") if group is not None else init_device_mesh("cpu", (dist.get_world_size(),))
        self.blocks = blocks
        for b in blocks:
            if any(True for _ in b.parameters()):
                fully_shard(b, mesh=mesh)
        fully_shard(blocks, mesh=mesh)
        self.params = list(blocks.parameters())
        self.opt = torch.optim.AdamW(self.params, lr=lr, betas=betas, eps=eps, weight_decay=weight_decay)

    def forward(self, x):
        return self.blocks(x)

    def backward(self, loss):
        loss.backward()
        for p in self.params:
            if p.grad is None:
                p.grad = torch.zeros_like(p)

    def gradient_shards(self):
        return [p.grad.to_local() for p in self.params]

    def step(self):
        self.opt.step()

    def zero_grad(self):
        self.opt.zero_grad()

    def full_state_dict(self):
        return {k: (v.full_tensor() if hasattr(v, "full_tensor") else v.clone()) for k, v in self.blocks.state_dict().items()}
