"""Counts a decoder's parameters from its ``config.json``, to the parameter, without building it."""

from __future__ import annotations

from typing import Any


class UnknownFamily(ValueError):
    """The config's ``model_type`` has no formula here."""


#: Families whose blocks are Llama's but for the flags: (biases of q, k, v; bias of o; norms of q and k; norms).
_LLAMA_LIKE = {
    "llama": (None, None, False, 2),
    "mistral": (False, False, False, 2),
    "mixtral": (False, False, False, 2),
    "qwen2": (True, False, False, 2),
    "qwen3": (None, None, True, 2),
    "qwen3_moe": (None, None, True, 2),
    "gemma": (None, None, False, 2),
    "gemma2": (None, None, False, 4),
    "phi3": (False, False, False, 2),
}


def count_parameters(config: dict[str, Any]) -> int:
    """All parameters of the decoder with its LM head; tied ones once.

    Raises:
        UnknownFamily: there is no formula for the config's ``model_type``.
        ValueError: a key is missing (which).
    """
    family = config.get("model_type")
    try:
        if family in _LLAMA_LIKE:
            return _llama_like(config, *_LLAMA_LIKE[family])
        if family in ("gpt2", "gpt_neox", "phi"):
            return {"gpt2": _gpt2, "gpt_neox": _gpt_neox, "phi": _phi}[family](config)
    except KeyError as error:
        raise ValueError(f"config.json lacks {error.args[0]}") from None
    known = ", ".join([*_LLAMA_LIKE, "gpt2", "gpt_neox", "phi"])
    raise UnknownFamily(f"model_type: {family!r} has no formula here; there are {known}")


def _llama_like(config, qkv_bias, o_bias, head_norms, norms) -> int:
    h, layers, vocab = config["hidden_size"], config["num_hidden_layers"], config["vocab_size"]
    heads = config["num_attention_heads"]
    kv_heads = config.get("num_key_value_heads") or heads
    head_dim = config.get("head_dim") or h // heads
    q, k = heads * head_dim, kv_heads * head_dim
    qkv_bias = bool(config.get("attention_bias", False)) if qkv_bias is None else qkv_bias
    o_bias = bool(config.get("attention_bias", False)) if o_bias is None else o_bias
    attention = h * q + 2 * h * k + q * h + qkv_bias * (q + 2 * k) + o_bias * h
    attention += 2 * head_dim if head_norms else 0
    family = config["model_type"]
    if family == "mixtral":
        experts = config["num_local_experts"]
        mlp = experts * 3 * h * config["intermediate_size"] + experts * h
    elif family == "qwen3_moe":
        experts = config["num_experts"]
        mlp = experts * 3 * h * config["moe_intermediate_size"] + experts * h
    else:
        f = config["intermediate_size"]
        mlp = 3 * h * f + (2 * f + h if config.get("mlp_bias") else 0)
    block = attention + mlp + norms * h
    tied = config.get("tie_word_embeddings", family in ("gemma", "gemma2"))
    return layers * block + h + vocab * h * (1 if tied else 2)


def _gpt2(config) -> int:
    h, vocab = config["n_embd"], config["vocab_size"]
    f = config.get("n_inner") or 4 * h
    block = 4 * h + (h * 3 * h + 3 * h) + (h * h + h) + (h * f + f) + (f * h + h)
    return config["n_layer"] * block + 2 * h + vocab * h + config.get("n_positions", 1024) * h


def _gpt_neox(config) -> int:
    h, f, vocab = config["hidden_size"], config["intermediate_size"], config["vocab_size"]
    bias = 3 * h + h if config.get("attention_bias", True) else 0
    block = 4 * h + 4 * h * h + bias + (h * f + f) + (f * h + h)
    return config["num_hidden_layers"] * block + 2 * h + vocab * h * (1 if config.get("tie_word_embeddings") else 2)


def _phi(config) -> int:
    h, f, vocab = config["hidden_size"], config["intermediate_size"], config["vocab_size"]
    k = (config.get("num_key_value_heads") or config["num_attention_heads"]) * (h // config["num_attention_heads"])
    attention = (h * h + h) + 2 * (h * k + k) + (h * h + h)
    block = 2 * h + attention + (h * f + f) + (f * h + h)
    head = vocab + (0 if config.get("tie_word_embeddings") else vocab * h)
    return config["num_hidden_layers"] * block + 2 * h + vocab * h + head
