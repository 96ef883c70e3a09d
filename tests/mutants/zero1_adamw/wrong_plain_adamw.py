"""Plain AdamW on every rank: nothing is sharded, nothing travels.

says: states, on every rank | update all parameters by itself
"""

import torch


class ShardedAdamW(torch.optim.AdamW):
    def __init__(self, params, lr=1e-3, betas=(0.9, 0.999), eps=1e-8, weight_decay=0.01, group=None):
        super().__init__(params, lr=lr, betas=betas, eps=eps, weight_decay=weight_decay)
