"""The real model of a run, from a config or a callable: with adapters, packed weights, checkpointing."""

from __future__ import annotations

import contextlib
from collections.abc import Callable
from typing import Any

import torch
from torch import nn

from rankzero.vram.model import Model, find_config
from rankzero.vram.run import Run
from rankzero.vram.without_memory import plain_conversion, unfilled


def build(model: Any, run: Run, fake: bool) -> tuple[nn.Module, Any]:
    """The module, and its inputs as a dict by name or a tuple. ``fake``: on tensors without memory.

    Raises:
        ValueError: the model cannot be built so; which field, and why.
    """
    if callable(model) and not isinstance(model, Model):
        with unfilled() if fake else contextlib.nullcontext():
            module, inputs = model()
        if run.precision in ("bf16_pure", "bf16_mixed"):
            with plain_conversion(fake):
                module.to(torch.bfloat16)
            inputs = _map(inputs, lambda each: each.bfloat16() if each.is_floating_point() else each)
    else:
        module, inputs = _from_config(model.config if isinstance(model, Model) else find_config(model)[0], run, fake)
    if run.method != "full":
        module = _with_adapters(module, run, fake)
    elif run.checkpointing == "full":
        _checkpoint(module)
    return module, inputs


def _from_config(config: dict[str, Any], run: Run, fake: bool) -> tuple[nn.Module, dict[str, torch.Tensor]]:
    try:
        import transformers
    except ModuleNotFoundError:
        raise ValueError("MODEL: a model from a config needs transformers; pip install 'rankzero[finetune]'") from None
    settings = {key: value for key, value in config.items() if key not in _NOT_SETTINGS}
    if "model_type" not in settings:
        raise ValueError("config.json lacks model_type")
    hf_config = transformers.AutoConfig.for_model(**settings)
    auto = _auto_class(hf_config)
    dtype = torch.bfloat16 if run.precision in ("bf16_pure", "bf16_mixed") else torch.float32
    attention = {"flash": _flash_name(), "sdpa": "sdpa", "eager": "eager"}[run.attention]
    with contextlib.suppress(AttributeError):
        hf_config.repeat_kv = run.repeat_kv
    with unfilled() if fake else contextlib.nullcontext():
        try:
            module = auto.from_config(hf_config, dtype=dtype, attn_implementation=attention)
        except ValueError:  # a family without this kind of attention (Gemma 2's scores are capped, which sdpa cannot)
            module = auto.from_config(hf_config, dtype=dtype, attn_implementation="eager")
    if fake:
        module.tie_weights()  # which comes with the drawing of values
    return module, _inputs(hf_config, module, run, dtype)


#: Keys of a config.json that say how weights are stored, not what the model is.
_NOT_SETTINGS = (
    "architectures",
    "torch_dtype",
    "dtype",
    "_name_or_path",
    "transformers_version",
    "quantization_config",
)


def _auto_class(config: Any) -> Any:
    import transformers
    from transformers.models.auto import modeling_auto as names

    for mapping, auto in (
        (names.MODEL_FOR_IMAGE_CLASSIFICATION_MAPPING_NAMES, transformers.AutoModelForImageClassification),
        (names.MODEL_FOR_MASKED_LM_MAPPING_NAMES, transformers.AutoModelForMaskedLM),
        (names.MODEL_FOR_CAUSAL_LM_MAPPING_NAMES, transformers.AutoModelForCausalLM),
    ):
        if config.model_type in mapping:
            return auto
    raise ValueError(
        f"model_type: {config.model_type!r} has neither a causal nor a masked language model, nor an image classifier; "
        "give a callable that returns the module and its inputs"
    )


def _inputs(config: Any, module: nn.Module, run: Run, dtype: torch.dtype) -> dict[str, Any]:
    if module.main_input_name == "pixel_values":
        side = getattr(config, "image_size", None) or 224
        side = side if isinstance(side, (list, tuple)) else (side, side)
        pixels = torch.randn(run.micro_batch, config.num_channels, *side).to(dtype)
        return {"pixel_values": pixels, "labels": torch.zeros(run.micro_batch, dtype=torch.long)}
    longest = getattr(config, "max_position_embeddings", None)
    if longest and run.seq_len > longest and not hasattr(config, "rope_parameters"):
        raise ValueError(f"seq_len: {run.seq_len} is more than the {longest} positions that the model has")
    ids = torch.zeros(run.micro_batch, run.seq_len, dtype=torch.long)
    inputs: dict[str, Any] = {"input_ids": ids, "labels": ids}
    if hasattr(config, "use_cache"):
        inputs["use_cache"] = False  # as transformers' Trainer sets it
    return inputs


def _checkpoint(module: nn.Module) -> None:
    if not hasattr(module, "gradient_checkpointing_enable"):
        raise ValueError("checkpointing: the model has no gradient_checkpointing_enable; let its forward checkpoint")
    module.gradient_checkpointing_enable(gradient_checkpointing_kwargs={"use_reentrant": False})


def _with_adapters(module: nn.Module, run: Run, fake: bool) -> nn.Module:
    try:
        import peft
    except ModuleNotFoundError:
        raise ValueError("method: adapters need peft; pip install 'rankzero[finetune]'") from None
    if run.method == "qlora":
        _quantize(module, run, fake)
    with plain_conversion(fake):
        if run.kbit_fp32:
            peft.prepare_model_for_kbit_training(module, run.checkpointing == "full", {"use_reentrant": False})
        elif run.checkpointing == "full":
            _checkpoint(module)
            if hasattr(module, "enable_input_require_grads"):
                module.enable_input_require_grads()
        settings = peft.LoraConfig(r=run.lora_rank, lora_dropout=run.lora_dropout, target_modules=_targets(module, run))
        return peft.get_peft_model(module, settings, autocast_adapter_dtype=run.adapter_dtype == "fp32")


#: What the projections are called, by family.
_NAMES = {
    "q": ("q_proj",),
    "k": ("k_proj",),
    "v": ("v_proj",),
    "qkv": ("query_key_value", "c_attn", "qkv_proj", "qkv"),
    "o": ("o_proj", "dense"),
    "gate": ("gate_proj",),
    "up": ("up_proj", "fc1", "dense_h_to_4h"),
    "down": ("down_proj", "fc2", "dense_4h_to_h"),
    "head": ("lm_head",),
}


def _targets(module: nn.Module, run: Run) -> Any:
    there = {name.rsplit(".", 1)[-1] for name, _ in module.named_modules()}
    if "all-linear" in run.lora_targets:
        return "all-linear"
    wanted = [name for part in run.targets for name in _NAMES[part] if name in there]
    if not wanted:
        raise ValueError(f"lora_targets: none of {', '.join(run.lora_targets)} is in this model")
    return wanted


def _quantize(module: nn.Module, run: Run, fake: bool) -> None:
    """Packed matrices in place of all linear layers but the LM head, as transformers' quantizer does."""
    double = run.quantization == "nf4"
    head = module.get_output_embeddings() if hasattr(module, "get_output_embeddings") else None
    for parent in list(module.modules()):
        for name, child in list(parent.named_children()):
            if (type(child) is nn.Linear or type(child).__name__ == "Conv1D") and child is not head:
                setattr(parent, name, _nf4(child, double, fake))
    module.is_loaded_in_4bit = True
    module.is_quantized = True
    module.requires_grad_(False)


def _nf4(linear: nn.Module, double: bool, fake: bool) -> nn.Module:
    # GPT-2's Conv1D is a linear layer whose weight lies the other way round.
    weight = linear.weight.data if isinstance(linear, nn.Linear) else linear.weight.data.T
    if fake:
        from rankzero.vram.cuda_like import nf4_linear

        return nf4_linear(weight, linear.bias, double, torch.bfloat16)
    import bitsandbytes

    rows, columns = weight.shape
    packed = bitsandbytes.nn.Linear4bit(
        columns,
        rows,
        bias=linear.bias is not None,
        compute_dtype=torch.bfloat16,
        compress_statistics=double,
        quant_type="nf4",
    )
    packed.weight = bitsandbytes.nn.Params4bit(
        weight, requires_grad=False, compress_statistics=double, quant_type="nf4"
    )
    if linear.bias is not None:
        packed.bias = linear.bias
    return packed.to("cpu")


def _flash_name() -> str:
    """Attention as the flash-attn package does it, known to transformers under a name of its own."""
    from transformers import AttentionInterface
    from transformers.masking_utils import AttentionMaskInterface, flash_attention_mask

    name = "rankzero_fused"
    AttentionInterface.register(name, _flash_attention)
    AttentionMaskInterface.register(name, flash_attention_mask)
    return name


def _flash_attention(
    module: nn.Module, query: torch.Tensor, key: torch.Tensor, value: torch.Tensor, *_: Any, **__: Any
):
    groups = query.shape[1] // key.shape[1]
    if groups > 1 and getattr(module.config, "repeat_kv", False):
        key, value = (each.repeat_interleave(groups, dim=1) for each in (key, value))
    if isinstance(query, torch._subclasses.FakeTensor):
        from rankzero.vram.cuda_like import flash

        # As transformers does before the kernel: to autocast's dtype, or to the one that the model was loaded in.
        dtype = torch.get_autocast_dtype("cpu") if torch.is_autocast_enabled("cpu") else module.config.dtype
        return flash(*(each.to(dtype) for each in (query, key, value))).transpose(1, 2), None
    out = nn.functional.scaled_dot_product_attention(
        query, key, value, is_causal=True, enable_gqa=key.shape[1] != query.shape[1]
    )
    return out.transpose(1, 2).contiguous(), None


def _map(values: Any, change: Callable) -> Any:
    if isinstance(values, dict):
        return {key: _map(value, change) for key, value in values.items()}
    if isinstance(values, (list, tuple)):
        return tuple(_map(value, change) for value in values)
    return change(values) if isinstance(values, torch.Tensor) else values
