"""What a decoder is, as far as its memory goes: sizes, read from a ``config.json`` or a built-in name."""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from difflib import get_close_matches
from functools import cached_property
from pathlib import Path
from typing import Any

from rankzero.vram.catalog import BUILT_IN
from rankzero.vram.hub import fetch_config, is_hub_id
from rankzero.vram.parameters import HEAD_DIM, count_parameters
from rankzero.vram.run import Run


@dataclass(frozen=True)
class Model:
    """A decoder's sizes. A *head* here is an attention head; the LM head is called ``lm_head``.

    Attributes:
        parameters: all parameters, tied ones once.
        gated: whether the MLP has a gate (SwiGLU, GeGLU): three matrices instead of two.
        norm: ``rms`` or ``layer``.
        experts: of each MLP, 1 for a dense model; ``experts_per_token`` of them work on a token.
        norms_per_layer: 2, or 4 where there are norms behind attention and MLP as well (Gemma 2, 3).
        head_norms: whether queries and keys are normed (Qwen 3, Gemma 3).
        dropout: whether attention and both outputs of a block are dropped out in training (BERT, GPT-2).
        soft_capped: whether scores and logits pass a tanh (Gemma 2), which rules out fused attention.
        parallel: whether attention and MLP read the same residual stream (GPT-NeoX, Phi).
        shared_norm: whether they read the same norm's output as well (Phi, Falcon).
        fused_qkv: whether one matrix makes queries, keys and values, and rotary embedding copies the first two.
        fused_gate_up: whether one matrix makes gate and up (Phi 3).
        gelu_new: whether the activation is GELU's tanh form written out in Python (GPT-2, Phi).
        fp32_scale: whether a norm multiplies by its weight in fp32 (Gemma).
        fp32_softmax: whether eager attention's softmax is in fp32.
    """

    name: str
    parameters: int
    layers: int
    hidden: int
    ffn: int
    heads: int
    kv_heads: int
    head_dim: int
    vocab: int
    tied: bool = False
    gated: bool = True
    norm: str = "rms"
    experts: int = 1
    experts_per_token: int = 1
    norms_per_layer: int = 2
    head_norms: bool = False
    parallel: bool = False
    shared_norm: bool = False
    fused_qkv: bool = False
    fused_gate_up: bool = False
    gelu_new: bool = False
    fp32_scale: bool = False
    fp32_softmax: bool = True
    dropout: bool = False
    soft_capped: bool = False
    config: dict[str, Any] = field(default_factory=dict, repr=False, compare=False)

    def __post_init__(self) -> None:
        for name in ("parameters", "layers", "hidden", "ffn", "heads", "kv_heads", "head_dim", "vocab", "experts"):
            value = getattr(self, name)
            if isinstance(value, bool) or not isinstance(value, int) or value < 1:
                raise ValueError(f"{name}: {value!r} is not a whole number of 1 or more")
        if self.heads % self.kv_heads:
            raise ValueError(f"kv_heads: {self.kv_heads} does not divide heads = {self.heads}")
        if self.parameters > 10**14 or self.hidden > 10**6 or self.layers > 10**4 or self.vocab > 10**8:
            raise ValueError("the sizes are absurd: check parameters, layers, hidden and vocab")

    @property
    def q(self) -> int:
        """Width of the queries of all heads."""
        return self.heads * self.head_dim

    @property
    def k(self) -> int:
        """Width of the keys, and of the values, of all key-value heads."""
        return self.kv_heads * self.head_dim

    @cached_property
    def embedding(self) -> int:
        """Parameters of the token embedding."""
        return self.vocab * self.hidden

    @cached_property
    def lm_head(self) -> int:
        """Parameters of an LM head of its own; 0 if it is the embedding."""
        return 0 if self.tied else self.embedding

    @cached_property
    def projections(self) -> dict[str, tuple[int, int]]:
        """One layer's matrices as (inputs, outputs), by short name; an MLP's are one expert's."""
        h, f = self.hidden, self.ffn
        shapes = {"q": (h, self.q), "k": (h, self.k), "v": (h, self.k), "o": (self.q, h), "up": (h, f), "down": (f, h)}
        if self.gated:
            shapes["gate"] = (h, f)
        return shapes

    @cached_property
    def linear(self) -> int:
        """Parameters of all layers' matrices, which is what QLoRA quantizes."""
        mlp = sum(i * o for name, (i, o) in self.projections.items() if name in ("gate", "up", "down"))
        return self.attention + self.layers * self.experts * mlp

    @cached_property
    def attention(self) -> int:
        """Parameters of all layers' attention matrices."""
        return self.layers * sum(i * o for name, (i, o) in self.projections.items() if name in ("q", "k", "v", "o"))

    @cached_property
    def layer(self) -> int:
        """Parameters of one layer, norms and biases included."""
        return max(0, self.parameters - self.embedding - self.lm_head) // self.layers

    @cached_property
    def _adaptable(self) -> dict[str, tuple[int, int]]:
        """What LoRA can be put on, as (inputs, outputs)."""
        h, f = self.hidden, self.ffn
        return {**self.projections, "qkv": (h, self.q + 2 * self.k), "gate_up": (h, 2 * f), "head": (h, self.vocab)}

    def adapted(self, run: Run) -> tuple[str, ...]:
        """The run's targets as layers that this model has: fused ones stand for their parts."""
        targets = [target for target in run.targets if target in self._adaptable]
        if self.fused_qkv:
            targets = ["qkv" if target in ("q", "k", "v") else target for target in targets]
        if self.fused_gate_up:
            targets = ["gate_up" if target in ("gate", "up") else target for target in targets]
        return tuple(dict.fromkeys(targets))

    def adapters(self, targets: tuple[str, ...], rank: int) -> int:
        """Parameters that LoRA of that rank adds to the targets."""
        total = 0
        for target in targets:
            copies = 1 if target == "head" else self.layers
            if target in ("gate", "up", "gate_up", "down"):
                copies *= self.experts
            total += copies * rank * sum(self._adaptable[target])
        return total


def load_model(source: str | dict[str, Any] | Model | Path) -> Model:
    """A model by built-in name, ``config.json`` (the file, its folder, its content) or hub id, or as it is.

    Raises:
        ValueError: the name is unknown (the nearest ones are named), the file is no JSON object, a key is
            missing (which), or sizes do not fit together.
        UnknownFamily: the config's ``model_type`` has no closed formula here.
    """
    if isinstance(source, Model):
        return source
    config, name = find_config(source)
    return from_config(config, name)


def find_config(source: str | dict[str, Any] | Path) -> tuple[dict[str, Any], str]:
    """The ``config.json`` that a source names, of whatever family, and what to call the model. Raises ValueError."""
    if isinstance(source, dict):
        return source, source.get("_name_or_path") or source.get("model_type", "model")
    path = Path(source)
    if path.is_dir():
        path = path / "config.json"
    if path.suffix == ".json" or path.is_file():
        return _read(path), path.parent.name or path.stem
    name = str(source).lower()
    if name in BUILT_IN:
        return BUILT_IN[name], name
    if is_hub_id(str(source)):
        return fetch_config(str(source)), str(source)
    near = get_close_matches(name, BUILT_IN, n=3, cutoff=0.4)
    hint = f"; near it are {', '.join(near)}" if near else ""
    raise ValueError(
        f"MODEL: {source!r} is neither a built-in name, nor a config.json, nor a folder with one{hint}. "
        "`rankzero vram --list` names the built-in ones"
    )


def _read(path: Path) -> dict[str, Any]:
    try:
        config = json.loads(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise ValueError(f"MODEL: {path} cannot be read: {error.strerror}") from None
    except ValueError as error:
        raise ValueError(f"MODEL: {path} is not JSON: {error}") from None
    if not isinstance(config, dict):
        raise ValueError(f"MODEL: {path} holds a {type(config).__name__}, not an object of settings")
    return config


def from_config(config: dict[str, Any], name: str) -> Model:
    """The model that a Hugging Face ``config.json`` describes."""
    if isinstance(config.get("text_config"), dict):
        config = {**config["text_config"], "model_type": config["text_config"].get("model_type", config["model_type"])}
    family = str(config.get("model_type", "")).lower()
    get = _Reader(config)
    if not family:
        raise ValueError("config.json lacks model_type")
    hidden = get("hidden_size", "n_embd")
    heads = get("num_attention_heads", "n_head")
    sizes = {
        "layers": get("num_hidden_layers", "n_layer"),
        "hidden": hidden,
        "ffn": get("moe_intermediate_size", "intermediate_size", "n_inner", default=4 * hidden),
        "heads": heads,
        "kv_heads": heads if family in ("gpt2", "gpt_neox") else get("num_key_value_heads", default=heads),
        "head_dim": get("head_dim", default=HEAD_DIM.get(family, hidden // heads)),
        "vocab": get("vocab_size"),
    }
    return Model(
        name=name,
        parameters=count_parameters(config),
        **sizes,
        tied=bool(config.get("tie_word_embeddings", family in _TIED)),
        gated=family not in _NOT_GATED,
        norm="layer" if family in _NOT_GATED else "rms",
        experts=get("num_local_experts", "num_experts", default=_EXPERTS.get(family, (1, 1))[0]),
        experts_per_token=get("num_experts_per_tok", default=_EXPERTS.get(family, (1, 1))[1]),
        norms_per_layer=4 if family in ("gemma2", "gemma3", "gemma3_text") else 2,
        head_norms=family in ("qwen3", "qwen3_moe", "gemma3", "gemma3_text"),
        parallel=family in ("gpt_neox", "phi"),
        shared_norm=family == "phi",
        fused_qkv=family in ("phi3", "gpt_neox"),
        fused_gate_up=family == "phi3",
        gelu_new=config.get("activation_function" if family == "gpt2" else "hidden_act", _ACT.get(family))
        == "gelu_new",
        fp32_scale=family in ("gemma", "gemma2", "gemma3", "gemma3_text"),
        fp32_softmax=family != "gpt2",
        soft_capped=family == "gemma2" and config.get("attn_logit_softcapping", 50.0) is not None,
        dropout=any(config.get(key, default) for key, default in _DROPOUT.get(family, {}).items()),
        config=config,
    )


#: Families that drop out in training unless their config says 0, with the keys' defaults.
_DROPOUT = {"gpt2": {"attn_pdrop": 0.1, "resid_pdrop": 0.1}, "gpt_bigcode": {"attn_pdrop": 0.1, "resid_pdrop": 0.1}}
#: Experts, and experts per token, where a config does not say.
_EXPERTS = {"mixtral": (8, 2), "qwen3_moe": (128, 8)}
_ACT = {"gpt2": "gelu_new", "phi": "gelu_new"}
_TIED = ("gpt2", "gemma", "gemma2", "gemma3", "gemma3_text")
_NOT_GATED = ("gpt2", "gpt_neox", "phi", "gpt_bigcode", "falcon")


class _Reader:
    """Reads a config's whole numbers, by the first of several keys that is there."""

    def __init__(self, config: dict[str, Any]) -> None:
        self.config = config

    def __call__(self, *keys: str, default: int | None = None) -> int:
        for key in keys:
            value = self.config.get(key)
            if value is not None:
                if isinstance(value, bool) or not isinstance(value, int) or value < 1:
                    raise ValueError(f"{key}: {value!r} is not a whole number of 1 or more")
                return value
        if default is None:
            raise ValueError(f"config.json lacks {' or '.join(keys)}")
        return default
