"""A training step as people write it: the real model, its inputs, its loss and its optimizer, from a ``Run``."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import torch
from torch import nn

from rankzero.vram.model import Model, load_model
from rankzero.vram.run import Run

#: Builds a module and its inputs: ``() -> (module, inputs)``, inputs as a dict by name or a tuple.
Builder = Callable[[], "tuple[nn.Module, dict[str, Any] | tuple]"]


class Workload:
    """One process's training step, on whatever tensors the modes around it make.

    Attributes:
        module: the model, with adapters and quantized weights where the run has them.
        trained: the parameters that train.
        optimizers: what steps at the end; one per parameter where the optimizer steps in backward; none for "none".
    """

    def __init__(self, model: Any, run: Run, fake: bool) -> None:
        refuse(run)
        self.run = run
        self.masters: list[tuple[nn.Parameter, nn.Parameter]] = []
        self.optimizers: list[torch.optim.Optimizer] = []
        self.module, self.inputs = _build(model, run, fake)
        self.module.train()
        self.trained = [parameter for parameter in self.module.parameters() if parameter.requires_grad]
        if not self.trained:
            raise ValueError("lora_targets: none of them is in this model, so nothing would train")
        self._make_optimizers()

    def weights(self) -> Iterator[torch.Tensor]:
        """The parameters, and the scales of quantized ones."""
        yield from self.module.parameters()
        for module in self.module.modules():
            yield from getattr(module, "nf4_scales", {}).values()

    def forward(self) -> torch.Tensor:
        """The loss of one micro-batch. What else the model returns is let go, as transformers' Trainer does."""
        with autocast(self.run):
            out = self.module(**self.inputs) if isinstance(self.inputs, dict) else self.module(*self.inputs)
        loss = getattr(out, "loss", None)
        if loss is None:
            loss = out[0] if isinstance(out, (tuple, list)) else out
        if isinstance(loss, dict):
            loss = loss["loss"]
        return loss if loss.dim() == 0 else loss.float().mean()

    def step(self) -> None:
        """The optimizer step, and no gradient after it."""
        if not self.run.optimizer_in_backward:
            for master, parameter in self.masters:
                master.grad = parameter.grad.float()
            for optimizer in self.optimizers:
                optimizer.step()
            for master, parameter in self.masters:
                parameter.data.copy_(master.data)
                master.grad = None
        for parameter in self.trained:
            parameter.grad = None

    def optimizer_states(self) -> Iterator[torch.Tensor]:
        """The optimizers' tensors, the fp32 master copies included."""
        for master, _ in self.masters:
            yield master
        for optimizer in self.optimizers:
            for state in optimizer.state.values():
                yield from (value for value in state.values() if isinstance(value, torch.Tensor))

    def _make_optimizers(self) -> None:
        run = self.run
        if run.optimizer == "none":
            return
        targets: list[nn.Parameter] = self.trained
        if run.precision == "bf16_mixed" and run.method == "full":
            self.masters = [(nn.Parameter(each.detach().float()), each) for each in self.trained]
            targets = [master for master, _ in self.masters]
        if not run.optimizer_in_backward:
            self.optimizers = [make_optimizer(targets, run)]
            return
        for position, parameter in enumerate(self.trained):
            target = targets[position]
            optimizer = make_optimizer([target], run)
            self.optimizers.append(optimizer)
            parameter.register_post_accumulate_grad_hook(_stepper(optimizer, target))


def _stepper(optimizer: torch.optim.Optimizer, target: nn.Parameter) -> Callable[[torch.Tensor], None]:
    def step(parameter: torch.Tensor) -> None:
        if target is not parameter:
            target.grad = parameter.grad.float()
        optimizer.step()
        if target is not parameter:
            parameter.data.copy_(target.data)
            target.grad = None
        parameter.grad = None

    return step


def make_optimizer(parameters: list[nn.Parameter], run: Run) -> torch.optim.Optimizer:
    """The optimizer that the run names. foreach is asked for by name: torch takes it by itself on CUDA only."""
    rate = 1e-4
    if run.optimizer == "adamw":
        return torch.optim.AdamW(parameters, rate, foreach=True)
    if run.optimizer == "adamw_fused":
        return torch.optim.AdamW(parameters, rate, fused=True)
    if run.optimizer == "adafactor":
        return torch.optim.Adafactor(parameters, rate, foreach=True)
    momentum = 0.9 if run.optimizer == "sgd_momentum" else 0.0
    return torch.optim.SGD(parameters, rate, momentum=momentum, foreach=True)


def autocast(run: Run) -> contextlib.AbstractContextManager:
    """The autocast that the forward runs under, or nothing."""
    if run.autocast or run.precision == "autocast":
        return torch.autocast("cpu", dtype=torch.bfloat16)
    return contextlib.nullcontext()


def refuse(run: Run) -> None:
    """Runs that cannot be run in one process, or that need kernels that are not here.

    Raises:
        ValueError: says which field and why.
    """
    if run.gpus > 1:
        raise ValueError(
            f"gpus: a trace is of one GPU; what {run.gpus} of them share and send has closed formulas only"
        )
    if run.optimizer in ("adamw8bit", "adamw4bit", "paged_adamw", "paged_adamw8bit"):
        raise ValueError(
            f"optimizer: {run.optimizer!r} is not traced; adamw, adamw_fused, sgd, sgd_momentum, adafactor, none are"
        )
    if run.checkpointing not in ("none", "full"):
        raise ValueError(f"checkpointing: {run.checkpointing!r} is not traced; none and full are")
    if run.loss != "hf":
        raise ValueError(f"loss: {run.loss!r} is not traced; 'hf', the model's own loss, is")
    if run.kernels != "eager":
        raise ValueError(f"kernels: {run.kernels!r} are not traced; 'eager' ones are")
    if run.offload != "none":
        raise ValueError(f"offload: {run.offload!r} is not traced; 'none' is")
    if run.method == "qlora" and run.quantization == "int8":
        raise ValueError("quantization: 'int8' is not traced; nf4 and nf4_single are")
    if run.states == "fp32" and run.precision == "bf16_pure":
        raise ValueError("states: torch's optimizers keep them in the weights' dtype, so 'fp32' is not traced here")


def _build(model: Any, run: Run, fake: bool) -> tuple[nn.Module, Any]:
    if callable(model) and not isinstance(model, Model):
        module, inputs = model()
        if run.precision in ("bf16_pure", "bf16_mixed"):
            with plain_conversion(fake):
                module.to(torch.bfloat16)
            inputs = _map(inputs, lambda each: each.bfloat16() if each.is_floating_point() else each)
    else:
        module, inputs = _from_config(config_of(model), run, fake)
    if run.method != "full":
        module = _with_adapters(module, run, fake)
    elif run.checkpointing == "full":
        _checkpoint(module)
    return module, inputs


def config_of(model: Any) -> dict[str, Any]:
    """The ``config.json`` of a model, whatever its family."""
    if isinstance(model, dict):
        return model
    if isinstance(model, (str, Path)) and Path(model).exists():
        import json

        path = Path(model)
        return json.loads((path / "config.json" if path.is_dir() else path).read_text(encoding="utf-8"))
    return load_model(model).config


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
            if type(child) is nn.Linear and child is not head:
                setattr(parent, name, _nf4(child, double, fake))
    module.is_loaded_in_4bit = True
    module.is_quantized = True
    module.requires_grad_(False)


def _nf4(linear: nn.Linear, double: bool, fake: bool) -> nn.Module:
    if fake:
        from rankzero.vram.cuda_like import nf4_linear

        return nf4_linear(linear, double, torch.bfloat16)
    import bitsandbytes

    packed = bitsandbytes.nn.Linear4bit(
        linear.in_features,
        linear.out_features,
        bias=linear.bias is not None,
        compute_dtype=torch.bfloat16,
        compress_statistics=double,
        quant_type="nf4",
    )
    packed.weight = bitsandbytes.nn.Params4bit(
        linear.weight.data, requires_grad=False, compress_statistics=double, quant_type="nf4"
    )
    if linear.bias is not None:
        packed.bias = linear.bias
    return packed.to("cpu")


@contextlib.contextmanager
def plain_conversion(fake: bool) -> Iterator[None]:
    """``Module.to`` by setting ``.data``: torch swaps tensors without memory, which fails once they are referred to."""
    if not fake:
        yield
        return
    usual = nn.Module._apply

    def apply(self: nn.Module, fn: Callable, recurse: bool = True) -> nn.Module:
        for child in self.children() if recurse else ():
            child._apply(fn)
        for parameter in self._parameters.values():
            if parameter is not None:
                with torch.no_grad():
                    new = fn(parameter)
                if new is not parameter:
                    parameter.data = new
        for key, buffer in self._buffers.items():
            if buffer is not None:
                self._buffers[key] = fn(buffer)
        return self

    nn.Module._apply = apply
    try:
        yield
    finally:
        nn.Module._apply = usual


@contextlib.contextmanager
def unfilled() -> Iterator[None]:
    """Weights that nobody draws: drawing takes time, and some draw again until all values are within bounds."""
    from transformers.initialization import no_init_weights

    with no_init_weights():
        yield


@contextlib.contextmanager
def values_unread() -> Iterator[None]:
    """transformers looks at values to skip masks, and skips no mask where it finds a tensor without memory.

    It is kept from finding out: each such look is answered as for one whole, unpadded sequence per row.
    """
    try:
        from transformers.utils import import_utils
    except ModuleNotFoundError:
        yield
        return
    changes = [(import_utils, "is_fake_tensor", lambda _: False)]
    with contextlib.suppress(ImportError):
        from transformers.integrations import moe

        # Without memory, torch multiplies by groups in bf16 only; the fall-back takes the same bytes.
        changes.append((moe, "_can_use_grouped_mm", lambda _, weight, __: weight.dtype is torch.bfloat16))
    usual = [(where, name, getattr(where, name)) for where, name, _ in changes if hasattr(where, name)]
    for where, name, new in changes:
        setattr(where, name, new)
    try:
        yield
    finally:
        for where, name, old in usual:
            setattr(where, name, old)


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
) -> tuple[torch.Tensor, None]:
    groups = query.shape[1] // key.shape[1]
    if groups > 1 and getattr(module.config, "repeat_kv", False):
        key, value = (each.repeat_interleave(groups, dim=1) for each in (key, value))
    out = torch.nn.functional.scaled_dot_product_attention(
        query, key, value, is_causal=True, enable_gqa=key.shape[1] != query.shape[1]
    )
    return out.transpose(1, 2).contiguous(), None


def _map(values: Any, change: Callable) -> Any:
    if isinstance(values, dict):
        return {key: _map(value, change) for key, value in values.items()}
    if isinstance(values, (list, tuple)):
        return tuple(_map(value, change) for value in values)
    return change(values) if isinstance(values, torch.Tensor) else values
