"""As torch does: norms of norms, a clamped factor, float32; a tensor is returned."""

import torch
import torch.distributed as dist


def clip_grad_norm_sharded(shards, max_norm):
    own = torch.linalg.vector_norm(torch.stack([torch.linalg.vector_norm(s) for s in shards])) if shards else torch.zeros(())
    total = own.float() ** 2
    dist.all_reduce(total)
    total = total.sqrt()
    factor = torch.clamp(max_norm / (total + 1e-6), max=1.0)
    for shard in shards:
        shard.mul_(factor.to(shard.dtype))
    return total
