"""Every weight of a decoder family, by the arithmetic of its ``config.json``: no model is built.

The keys are those of Hugging Face configurations. A missing key takes the default of its family, as
transformers does. What is counted here equals ``model.num_parameters()``, to the parameter.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any

Config = dict[str, Any]


@dataclass(frozen=True)
class Weight:
    """Weights of one kind: ``copies`` tensors of one shape.

    Attributes:
        name: the last part of its name in the model, such as "q_proj" or "input_layernorm".
        shape: of one of them; [out, in] for a linear layer.
        copies: how many there are in the model (layers, times experts).
        kind: "embedding", "linear" (inside a block: what LoRA targets and NF4 quantizes), "expert" (a linear
            layer of one expert), "bias", "norm" or "head".
    """

    name: str
    shape: tuple[int, ...]
    copies: int
    kind: str

    @property
    def parameters(self) -> int:
        return math.prod(self.shape) * self.copies


class UnknownFamily(ValueError):
    """No weights are known for that ``model_type``; the message lists the known ones."""


def count_parameters(config: Config) -> int:
    """The number of parameters; tied weights are counted once.

    Raises:
        UnknownFamily: for a ``model_type`` that is not known here.
        ValueError: a key that is needed is missing, or a size is impossible.
    """
    return sum(weight.parameters for weight in weights(config))


def weights(config: Config) -> list[Weight]:
    """All weights of a model, from the embedding to the head. Raises as :func:`count_parameters` does."""
    family = str(config.get("model_type", "")).lower()
    if family not in _FAMILIES:
        raise UnknownFamily(f"model_type: {family!r} has no formula here; there are {', '.join(families())}")
    return list(_FAMILIES[family](_Sizes(config, family)))


def families() -> list[str]:
    """The values of ``model_type`` whose weights are known."""
    return sorted(_FAMILIES)


class _Sizes:
    """The sizes that a configuration states, or that its family takes when it does not."""

    def __init__(self, config: Config, family: str):
        self.config = config
        self.family = family
        self.hidden = self.size("hidden_size", "n_embd")
        self.layers = self.size("num_hidden_layers", "n_layer")
        self.heads = self.size("num_attention_heads", "n_head")
        self.vocab = self.size("vocab_size")
        self.tied = bool(config.get("tie_word_embeddings", family in _TIED))
        kv_heads = config.get("num_key_value_heads")
        self.kv_heads = _whole("num_key_value_heads", kv_heads) if kv_heads else _KV_HEADS.get(family, self.heads)
        head_dim = config.get("head_dim") or HEAD_DIM.get(family)
        if not head_dim:
            head_dim, rest = divmod(self.hidden, self.heads)
            if rest:
                raise ValueError(f"hidden_size {self.hidden} is not divisible by num_attention_heads {self.heads}")
        self.head_dim = _whole("head_dim", head_dim)
        if self.heads % self.kv_heads:
            raise ValueError(f"num_key_value_heads: {self.kv_heads} does not divide num_attention_heads = {self.heads}")
        self.query = self.heads * self.head_dim
        self.key = self.kv_heads * self.head_dim

    def size(self, *names: str, default: int | None = None) -> int:
        """The first of the keys ``names`` that is there, as a positive whole number."""
        for name in names:
            if self.config.get(name) is not None:
                return _whole(name, self.config[name])
        if default is None:
            raise ValueError(f"config.json lacks {' or '.join(names)}")
        return default

    def on(self, name: str, default: bool = False) -> bool:
        value = self.config.get(name)
        return default if value is None else bool(value)


def _whole(name: str, value: Any) -> int:
    if isinstance(value, bool) or not isinstance(value, int) or value < 1:
        raise ValueError(f"{name}: {value!r} is not a whole number of 1 or more")
    return value


#: Families whose head is the embedding unless the configuration says otherwise.
_TIED = {"gemma", "gemma2", "gemma3_text", "gpt2", "gpt_bigcode", "starcoder2"}
#: Defaults of the families' configuration classes, where they are not "as many as heads".
_KV_HEADS = {"mistral": 8, "mixtral": 8, "qwen2": 32, "qwen3": 32, "gemma": 16, "gemma2": 4, "gemma3_text": 4}
_KV_HEADS |= {"qwen2_moe": 16, "qwen3_moe": 4, "starcoder2": 2}
HEAD_DIM = {"gemma": 256, "gemma2": 256, "gemma3_text": 256, "qwen3": 128}

# -- parts that several families share --------------------------------------------------------------------


def _linear(name: str, out: int, into: int, copies: int, bias: bool = False, kind: str = "linear") -> list[Weight]:
    parts = [Weight(name, (out, into), copies, kind)]
    return [*parts, Weight(f"{name}.bias", (out,), copies, "bias")] if bias else parts


def _norm(name: str, size: int, copies: int, bias: bool = False) -> list[Weight]:
    parts = [Weight(name, (size,), copies, "norm")]
    return [*parts, Weight(f"{name}.bias", (size,), copies, "norm")] if bias else parts


def _embedding(s: _Sizes, name: str = "embed_tokens") -> list[Weight]:
    return [Weight(name, (s.vocab, s.hidden), 1, "embedding")]


def _head(s: _Sizes, bias: bool = False, name: str = "lm_head") -> list[Weight]:
    """The output layer; tied to the embedding it has no weight of its own."""
    parts = [] if s.tied else [Weight(name, (s.vocab, s.hidden), 1, "head")]
    return [*parts, Weight(f"{name}.bias", (s.vocab,), 1, "bias")] if bias else parts


def _attention(s: _Sizes, qkv_bias: bool, out_bias: bool, out: str = "o_proj") -> list[Weight]:
    """Query, key, value and output projections; grouped queries make key and value narrower."""
    return [
        *_linear("q_proj", s.query, s.hidden, s.layers, qkv_bias),
        *_linear("k_proj", s.key, s.hidden, s.layers, qkv_bias),
        *_linear("v_proj", s.key, s.hidden, s.layers, qkv_bias),
        *_linear(out, s.hidden, s.query, s.layers, out_bias),
    ]


def _gated_mlp(
    s: _Sizes, width: int, copies: int, bias: bool = False, kind: str = "linear", prefix: str = ""
) -> list[Weight]:
    return [
        *_linear(f"{prefix}gate_proj", width, s.hidden, copies, bias, kind),
        *_linear(f"{prefix}up_proj", width, s.hidden, copies, bias, kind),
        *_linear(f"{prefix}down_proj", s.hidden, width, copies, bias, kind),
    ]


def _norms(s: _Sizes, *names: str, bias: bool = False) -> list[Weight]:
    return [part for name in names for part in _norm(name, s.hidden, s.layers, bias)]


def _query_key_norms(s: _Sizes) -> list[Weight]:
    return [*_norm("q_norm", s.head_dim, s.layers), *_norm("k_norm", s.head_dim, s.layers)]


# -- families ---------------------------------------------------------------------------------------------


def _llama_like(
    qkv_bias: bool | None = None,
    out_bias: bool | None = None,
    mlp_bias: bool = False,
    head_norms: bool = False,
    norms: tuple[str, ...] = ("input_layernorm", "post_attention_layernorm"),
) -> Callable[[_Sizes], Iterable[Weight]]:
    """RMSNorm, attention with grouped queries, a gated MLP. A bias of None is what ``attention_bias`` says."""

    def weights_of(s: _Sizes) -> Iterable[Weight]:
        asked = s.on("attention_bias")
        yield from _embedding(s)
        yield from _attention(s, asked if qkv_bias is None else qkv_bias, asked if out_bias is None else out_bias)
        if head_norms:
            yield from _query_key_norms(s)
        yield from _mlp(s, mlp_bias and s.on("mlp_bias"))
        yield from _norms(s, *norms)
        yield from _norm("norm", s.hidden, 1)
        yield from _head(s)

    return weights_of


def _mlp(s: _Sizes, bias: bool) -> list[Weight]:
    """A gated MLP in every block, or experts in those blocks that have them."""
    if s.family in ("mixtral", "qwen2_moe", "qwen3_moe"):
        return _experts(s)
    return _gated_mlp(s, s.size("intermediate_size"), s.layers, bias)


def _experts(s: _Sizes) -> list[Weight]:
    if s.family == "mixtral":
        width, experts = s.size("intermediate_size"), s.size("num_local_experts", default=8)
    else:
        width_default, experts_default = {"qwen2_moe": (1408, 60), "qwen3_moe": (768, 128)}[s.family]
        width = s.size("moe_intermediate_size", default=width_default)
        experts = s.size("num_experts", default=experts_default)
    step = s.size("decoder_sparse_step", default=1)
    dense_by_name = s.config.get("mlp_only_layers") or ()
    sparse = sum(layer not in dense_by_name and (layer + 1) % step == 0 for layer in range(s.layers))
    parts = [Weight("gate", (experts, s.hidden), sparse, "linear")]
    parts += _gated_mlp(s, width, sparse * experts, kind="expert", prefix="experts.")
    if s.family == "qwen2_moe":
        shared = s.size("shared_expert_intermediate_size", default=5632)
        parts += _gated_mlp(s, shared, sparse, prefix="shared_expert.")
        parts += _linear("shared_expert_gate", 1, s.hidden, sparse)
    if sparse < s.layers:
        parts += _gated_mlp(s, s.size("intermediate_size"), s.layers - sparse)
    return parts


def _phi(s: _Sizes) -> Iterable[Weight]:
    """Attention and MLP side by side behind one LayerNorm; biases everywhere, in the head too."""
    width = s.size("intermediate_size")
    yield from _embedding(s)
    yield from _attention(s, True, True, out="dense")
    if s.on("qk_layernorm"):
        yield from _norm("q_layernorm", s.head_dim, s.layers, bias=True)
        yield from _norm("k_layernorm", s.head_dim, s.layers, bias=True)
    yield from _linear("fc1", width, s.hidden, s.layers, True)
    yield from _linear("fc2", s.hidden, width, s.layers, True)
    yield from _norms(s, "input_layernorm", bias=True)
    yield from _norm("final_layernorm", s.hidden, 1, bias=True)
    yield from _head(s, bias=True)


def _phi3(s: _Sizes) -> Iterable[Weight]:
    """As Llama, with query, key and value in one matrix, and gate and up in another."""
    width = s.size("intermediate_size")
    yield from _embedding(s)
    yield from _linear("qkv_proj", s.query + 2 * s.key, s.hidden, s.layers)
    yield from _linear("o_proj", s.hidden, s.query, s.layers)
    yield from _linear("gate_up_proj", 2 * width, s.hidden, s.layers)
    yield from _linear("down_proj", s.hidden, width, s.layers)
    yield from _norms(s, "input_layernorm", "post_attention_layernorm")
    yield from _norm("norm", s.hidden, 1)
    yield from _head(s)


def _gpt2(s: _Sizes) -> Iterable[Weight]:
    """Learned positions, LayerNorm, an MLP of two matrices. gpt_bigcode keeps a single key and value head."""
    width = s.size("n_inner", default=4 * s.hidden)
    one_head = s.family == "gpt_bigcode" and s.on("multi_query", True)
    key = s.head_dim if one_head else s.hidden
    yield from _embedding(s, "wte")
    yield Weight("wpe", (s.size("n_positions", "max_position_embeddings", default=1024), s.hidden), 1, "embedding")
    yield from _linear("c_attn", s.hidden + 2 * key, s.hidden, s.layers, True)
    yield from _linear("attn.c_proj", s.hidden, s.hidden, s.layers, True)
    yield from _linear("c_fc", width, s.hidden, s.layers, True)
    yield from _linear("mlp.c_proj", s.hidden, width, s.layers, True)
    yield from _norms(s, "ln_1", "ln_2", bias=True)
    yield from _norm("ln_f", s.hidden, 1, bias=True)
    yield from _head(s)


def _gpt_neox(s: _Sizes) -> Iterable[Weight]:
    """Query, key and value in one matrix; biases in all blocks, none in the head."""
    width = s.size("intermediate_size")
    yield from _embedding(s, "embed_in")
    yield from _linear("query_key_value", 3 * s.hidden, s.hidden, s.layers, s.on("attention_bias", True))
    yield from _linear("dense", s.hidden, s.hidden, s.layers, s.on("attention_bias", True))
    yield from _linear("dense_h_to_4h", width, s.hidden, s.layers, True)
    yield from _linear("dense_4h_to_h", s.hidden, width, s.layers, True)
    yield from _norms(s, "input_layernorm", "post_attention_layernorm", bias=True)
    yield from _norm("final_layer_norm", s.hidden, 1, bias=True)
    yield from _head(s, name="embed_out")


def _starcoder2(s: _Sizes) -> Iterable[Weight]:
    """Grouped queries, LayerNorm, an MLP of two matrices; ``use_bias`` decides about all biases."""
    width, bias = s.size("intermediate_size"), s.on("use_bias", True)
    yield from _embedding(s)
    yield from _attention(s, bias, bias)
    yield from _linear("c_fc", width, s.hidden, s.layers, bias)
    yield from _linear("c_proj", s.hidden, width, s.layers, bias)
    yield from _norms(s, "input_layernorm", "post_attention_layernorm", bias=True)
    yield from _norm("norm", s.hidden, 1, bias=True)
    yield from _head(s)


_TWO_NORMS = ("input_layernorm", "post_attention_layernorm")
_FOUR_NORMS = (*_TWO_NORMS, "pre_feedforward_layernorm", "post_feedforward_layernorm")
_FAMILIES: dict[str, Callable[[_Sizes], Iterable[Weight]]] = {
    "llama": _llama_like(mlp_bias=True),
    "granite": _llama_like(mlp_bias=True),
    "mistral": _llama_like(qkv_bias=False, out_bias=False),
    "qwen2": _llama_like(qkv_bias=True, out_bias=False),
    "qwen3": _llama_like(head_norms=True),
    "gemma": _llama_like(),
    "gemma2": _llama_like(norms=_FOUR_NORMS),
    "gemma3_text": _llama_like(head_norms=True, norms=_FOUR_NORMS),
    "mixtral": _llama_like(qkv_bias=False, out_bias=False),
    "qwen2_moe": _llama_like(qkv_bias=True, out_bias=False),
    "qwen3_moe": _llama_like(head_norms=True),
    "phi": _phi,
    "phi3": _phi3,
    "gpt2": _gpt2,
    "gpt_bigcode": _gpt2,
    "gpt_neox": _gpt_neox,
    "starcoder2": _starcoder2,
}
