"""A small Llama, written out: the same weights, the same outputs and the same tensors kept as transformers' own.

For measurements where transformers is not installed. The tests hold it against the original.
"""

from __future__ import annotations

from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.utils.checkpoint import checkpoint


class Llama(nn.Module):
    """A decoder from the keys of a Llama's ``config.json``; token ids [batch, seq] in, logits [batch, seq, vocab] out.

    Args:
        config: ``vocab_size``, ``hidden_size``, ``intermediate_size``, ``num_hidden_layers``,
            ``num_attention_heads``; ``num_key_value_heads``, ``head_dim``, ``tie_word_embeddings``, ``rms_norm_eps``
            and ``rope_theta`` may be missing.
        checkpointing: keep only each block's input, and run the block again in backward.
    """

    def __init__(self, config: dict[str, Any], checkpointing: bool = False):
        super().__init__()
        self.checkpointing = checkpointing
        self.model = _Decoder(config)
        self.lm_head = nn.Linear(config["hidden_size"], config["vocab_size"], bias=False)
        if config.get("tie_word_embeddings"):
            self.lm_head.weight = self.model.embed_tokens.weight

    def forward(self, ids: Tensor) -> Tensor:
        return self.lm_head(self.model(ids, self.checkpointing))


class _Decoder(nn.Module):
    def __init__(self, config: dict[str, Any]):
        super().__init__()
        hidden = config["hidden_size"]
        self.embed_tokens = nn.Embedding(config["vocab_size"], hidden)
        self.layers = nn.ModuleList(Block(config) for _ in range(config["num_hidden_layers"]))
        self.norm = RMSNorm(hidden, config.get("rms_norm_eps", 1e-6))
        self._head_dim = config.get("head_dim") or hidden // config["num_attention_heads"]
        self._theta = config.get("rope_theta", 10_000.0)

    def forward(self, ids: Tensor, checkpointing: bool) -> Tensor:
        x = self.embed_tokens(ids)
        rotation = self._rotation(ids.shape[1], x)
        for block in self.layers:
            x = checkpoint(block, x, rotation, use_reentrant=False) if checkpointing else block(x, rotation)
        return self.norm(x)

    def _rotation(self, seq_len: int, like: Tensor) -> tuple[Tensor, Tensor]:
        """Cosine and sine of each position's angles, [1, 1, seq, head_dim], as the hidden states in dtype."""
        exponents = torch.arange(0, self._head_dim, 2, device=like.device).float() / self._head_dim
        angles = torch.arange(seq_len, device=like.device).float()[:, None] * self._theta**-exponents
        angles = torch.cat((angles, angles), dim=-1)[None, None]
        return angles.cos().to(like.dtype), angles.sin().to(like.dtype)


class Block(nn.Module):
    """One block: attention and MLP, each behind a norm and beside a shortcut. [batch, seq, hidden] in and out."""

    def __init__(self, config: dict[str, Any]):
        super().__init__()
        hidden, eps = config["hidden_size"], config.get("rms_norm_eps", 1e-6)
        self.input_layernorm = RMSNorm(hidden, eps)
        self.self_attn = Attention(config)
        self.post_attention_layernorm = RMSNorm(hidden, eps)
        self.mlp = MLP(hidden, config["intermediate_size"])

    def forward(self, x: Tensor, rotation: tuple[Tensor, Tensor]) -> Tensor:
        x = x + self.self_attn(self.input_layernorm(x), rotation)
        return x + self.mlp(self.post_attention_layernorm(x))


class RMSNorm(nn.Module):
    """Divides by the root of the mean square, in fp32, then scales."""

    def __init__(self, size: int, eps: float):
        super().__init__()
        self.weight = nn.Parameter(torch.ones(size))
        self._eps = eps

    def forward(self, x: Tensor) -> Tensor:
        wide = x.float()
        wide = wide * torch.rsqrt(wide.pow(2).mean(-1, keepdim=True) + self._eps)
        return self.weight * wide.to(x.dtype)


class Attention(nn.Module):
    """Causal attention with grouped queries and rotary positions."""

    def __init__(self, config: dict[str, Any]):
        super().__init__()
        hidden, heads = config["hidden_size"], config["num_attention_heads"]
        self._head_dim = config.get("head_dim") or hidden // heads
        kv_heads = config.get("num_key_value_heads") or heads
        self._grouped = kv_heads < heads
        self.q_proj = nn.Linear(hidden, heads * self._head_dim, bias=False)
        self.k_proj = nn.Linear(hidden, kv_heads * self._head_dim, bias=False)
        self.v_proj = nn.Linear(hidden, kv_heads * self._head_dim, bias=False)
        self.o_proj = nn.Linear(heads * self._head_dim, hidden, bias=False)

    def forward(self, x: Tensor, rotation: tuple[Tensor, Tensor]) -> Tensor:
        heads = (*x.shape[:2], -1, self._head_dim)
        q, k, v = (proj(x).view(heads).transpose(1, 2) for proj in (self.q_proj, self.k_proj, self.v_proj))
        q, k = _rotate(q, *rotation), _rotate(k, *rotation)
        mixed = F.scaled_dot_product_attention(q, k, v, is_causal=True, enable_gqa=self._grouped)
        return self.o_proj(mixed.transpose(1, 2).reshape(*x.shape[:2], -1))


class MLP(nn.Module):
    """SwiGLU: down(silu(gate(x)) · up(x))."""

    def __init__(self, hidden: int, width: int):
        super().__init__()
        self.gate_proj = nn.Linear(hidden, width, bias=False)
        self.up_proj = nn.Linear(hidden, width, bias=False)
        self.down_proj = nn.Linear(width, hidden, bias=False)

    def forward(self, x: Tensor) -> Tensor:
        return self.down_proj(F.silu(self.gate_proj(x)) * self.up_proj(x))


def _rotate(x: Tensor, cosine: Tensor, sine: Tensor) -> Tensor:
    first, second = x.chunk(2, dim=-1)
    return x * cosine + torch.cat((-second, first), dim=-1) * sine
