"""Models by the name that people use: what their published ``config.json`` says about sizes."""

from __future__ import annotations

from typing import Any


def _decoder(
    model_type: str,
    vocab: int,
    hidden: int,
    ffn: int,
    layers: int,
    heads: int,
    kv_heads: int,
    head_dim: int | None = None,
    tied: bool = False,
    **more: Any,
) -> dict[str, Any]:
    config = {
        "model_type": model_type,
        "vocab_size": vocab,
        "hidden_size": hidden,
        "intermediate_size": ffn,
        "num_hidden_layers": layers,
        "num_attention_heads": heads,
        "num_key_value_heads": kv_heads,
        "tie_word_embeddings": tied,
        **more,
    }
    return config if head_dim is None else {**config, "head_dim": head_dim}


def _gpt2(hidden: int, layers: int, heads: int) -> dict[str, Any]:
    sizes = {"n_embd": hidden, "n_layer": layers, "n_head": heads}
    return {"model_type": "gpt2", "vocab_size": 50257, "n_positions": 1024, **sizes}


BUILT_IN: dict[str, dict[str, Any]] = {
    "llama-2-7b": _decoder("llama", 32000, 4096, 11008, 32, 32, 32),
    "llama-2-13b": _decoder("llama", 32000, 5120, 13824, 40, 40, 40),
    "llama-2-70b": _decoder("llama", 32000, 8192, 28672, 80, 64, 8),
    "llama-3-8b": _decoder("llama", 128256, 4096, 14336, 32, 32, 8),
    "llama-3-70b": _decoder("llama", 128256, 8192, 28672, 80, 64, 8),
    "llama-3.1-405b": _decoder("llama", 128256, 16384, 53248, 126, 128, 8),
    "llama-3.2-1b": _decoder("llama", 128256, 2048, 8192, 16, 32, 8, 64, tied=True),
    "llama-3.2-3b": _decoder("llama", 128256, 3072, 8192, 28, 24, 8, 128, tied=True),
    "tinyllama-1.1b": _decoder("llama", 32000, 2048, 5632, 22, 32, 4),
    "smollm2-135m": _decoder("llama", 49152, 576, 1536, 30, 9, 3, tied=True),
    "smollm2-1.7b": _decoder("llama", 49152, 2048, 8192, 24, 32, 32, tied=True),
    "mistral-7b": _decoder("mistral", 32000, 4096, 14336, 32, 32, 8),
    "mistral-small-24b": _decoder("mistral", 131072, 5120, 32768, 40, 32, 8, 128),
    "mixtral-8x7b": _decoder("mixtral", 32000, 4096, 14336, 32, 32, 8, num_local_experts=8, num_experts_per_tok=2),
    "qwen2.5-0.5b": _decoder("qwen2", 151936, 896, 4864, 24, 14, 2, tied=True),
    "qwen2.5-1.5b": _decoder("qwen2", 151936, 1536, 8960, 28, 12, 2, tied=True),
    "qwen2.5-3b": _decoder("qwen2", 151936, 2048, 11008, 36, 16, 2, tied=True),
    "qwen2.5-7b": _decoder("qwen2", 152064, 3584, 18944, 28, 28, 4),
    "qwen2.5-14b": _decoder("qwen2", 152064, 5120, 13824, 48, 40, 8),
    "qwen2.5-32b": _decoder("qwen2", 152064, 5120, 27648, 64, 40, 8),
    "qwen2.5-72b": _decoder("qwen2", 152064, 8192, 29568, 80, 64, 8),
    "qwen3-0.6b": _decoder("qwen3", 151936, 1024, 3072, 28, 16, 8, 128, tied=True),
    "qwen3-1.7b": _decoder("qwen3", 151936, 2048, 6144, 28, 16, 8, 128, tied=True),
    "qwen3-4b": _decoder("qwen3", 151936, 2560, 9728, 36, 32, 8, 128, tied=True),
    "qwen3-8b": _decoder("qwen3", 151936, 4096, 12288, 36, 32, 8, 128),
    "qwen3-14b": _decoder("qwen3", 151936, 5120, 17408, 40, 40, 8, 128),
    "qwen3-32b": _decoder("qwen3", 151936, 5120, 25600, 64, 64, 8, 128),
    "gemma-2b": _decoder("gemma", 256000, 2048, 16384, 18, 8, 1, 256, tied=True),
    "gemma-7b": _decoder("gemma", 256000, 3072, 24576, 28, 16, 16, 256, tied=True),
    "gemma-2-2b": _decoder("gemma2", 256000, 2304, 9216, 26, 8, 4, 256, tied=True),
    "gemma-2-9b": _decoder("gemma2", 256000, 3584, 14336, 42, 16, 8, 256, tied=True),
    "gemma-2-27b": _decoder("gemma2", 256000, 4608, 36864, 46, 32, 16, 128, tied=True),
    "phi-2": _decoder("phi", 51200, 2560, 10240, 32, 32, 32),
    "phi-3-mini": _decoder("phi3", 32064, 3072, 8192, 32, 32, 32),
    "gpt2": _gpt2(768, 12, 12),
    "gpt2-xl": _gpt2(1600, 48, 25),
    "pythia-1b": _decoder("gpt_neox", 50304, 2048, 8192, 16, 8, 8),
    "pythia-6.9b": _decoder("gpt_neox", 50432, 4096, 16384, 32, 32, 32),
}
