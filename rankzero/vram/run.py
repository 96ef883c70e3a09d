"""What a training run is: the method, the precision, the sizes and the sharding that decide its memory."""

from __future__ import annotations

from dataclasses import dataclass, fields, replace
from difflib import get_close_matches
from typing import Any, Literal, get_args, get_origin, get_type_hints

Method = Literal["full", "lora", "qlora"]
Precision = Literal["fp32", "bf16_pure", "bf16_mixed", "autocast"]
Optimizer = Literal[
    "adamw",
    "adamw_fused",
    "adamw8bit",
    "adamw4bit",
    "paged_adamw",
    "paged_adamw8bit",
    "sgd",
    "sgd_momentum",
    "adafactor",
    "none",
]
Checkpointing = Literal["none", "full", "selective", "offload"]
Attention = Literal["sdpa", "eager", "flash"]
Loss = Literal[
    "hf",
    "hf_kept",
    "hf_4_48",
    "hf_4_45",
    "fused",
    "fused_4_45",
    "hf_4_45_kept",
    "fp32",
    "fp32_kept",
    "fabric",
    "fabric_chunked",
    "no_upcast",
    "no_upcast_fused",
    "no_upcast_kept",
    "chunked",
    "linear",
]
Sharding = Literal["none", "ddp", "zero1", "zero2", "zero3", "fsdp", "fsdp1", "hybrid"]
Offload = Literal["none", "optimizer", "parameters"]
Quantization = Literal["nf4", "nf4_single", "int8"]

#: The names under which a LoRA target may be given, and the projections that it stands for.
TARGETS = {
    "q_proj": ("q",),
    "k_proj": ("k",),
    "v_proj": ("v",),
    "o_proj": ("o",),
    "gate_proj": ("gate",),
    "up_proj": ("up",),
    "down_proj": ("down",),
    "lm_head": ("head",),
    "qkv": ("qkv",),
    "all-linear": ("q", "k", "v", "o", "gate", "up", "down"),
}


@dataclass(frozen=True)
class Run:
    """One training run. Sizes are per GPU: ``micro_batch`` sequences of ``seq_len`` tokens, padding included.

    Attributes:
        method: ``full`` fine-tuning, ``lora`` on frozen weights, ``qlora`` on quantized frozen weights.
        precision: ``fp32``; ``bf16_pure`` (weights, gradients and states in bf16); ``bf16_mixed`` (bf16 weights
            and gradients, an fp32 master copy beside the states); ``autocast`` (fp32 weights, bf16 compute).
            With ``lora`` and ``qlora`` it says how the frozen weights are kept.
        states: bytes per element of AdamW's two states follow the weights; ``fp32`` keeps them in fp32.
        variable_length: whether batches differ in length; ``seq_len`` is then the longest.
        autocast: whether the forward runs under ``torch.autocast`` (transformers' ``bf16=True``).
        kernels: ``eager``; ``fused_norms`` (norms and rotary embedding as one kernel each); ``fused`` (the MLP's
            activation too, as in Liger, Unsloth and under ``torch.compile``).
        loss: how logits become a loss, see ``rankzero.vram.activations.LOGITS``.
        repeat_kv: whether grouped keys and values are copied for each query head before attention.
        kbit_fp32: whether the parts that stay unquantized, and the residual stream, are fp32
            (``peft.prepare_model_for_kbit_training``).
        fp32_stream: whether the residual stream alone is fp32.
        kv_cache: whether the model keeps each block's keys and values until forward returns, as a view of all that made
            them (GPT-BigCode with checkpointing; others switch it off).
        quantized_inputs: bitsandbytes before 0.43.2 keeps each quantized linear's input until its graph dies; where
            the last step's loss is still bound, for ``two_steps``.
        quantize_head: whether QLoRA quantizes the LM head too (litgpt).
        stack: whose model code runs, where that matters (fused qkv, adapters' own indexing).
        experts: ``grouped``: one matrix product over all experts, whose weights stay unquantized under QLoRA
            (transformers 5); ``looped``: one expert after the other (transformers 4).
        context_mib: what CUDA takes before the first tensor: 140 to 940 MiB where its modules are loaded lazily
            (CUDA 11.7 and later), 1,300 to 1,800 before.
        unsharded_gradients: accumulation under FSDP with ``no_sync``, which keeps whole gradients.
        prefetch: whether FSDP gathers the next block in backward. Not where a reentrant checkpoint is called around
            the unit, as in transformers' Trainer with FSDP 1.
        shard_size: ranks of one shard group of ``hybrid`` sharding.

    Raises:
        ValueError: a field has a value that is not allowed; the message names the field and what is allowed.
    """

    method: Method = "full"
    precision: Precision = "bf16_mixed"
    optimizer: Optimizer = "adamw"
    optimizer_in_backward: bool = False
    states: Literal["weights", "fp32"] = "weights"
    micro_batch: int = 1
    seq_len: int = 2048
    accumulation: int = 1
    variable_length: bool = False
    checkpointing: Checkpointing = "none"
    attention: Attention = "sdpa"
    repeat_kv: bool = False
    kernels: Literal["eager", "fused_norms", "fused"] = "eager"
    autocast: bool = False
    loss: Loss = "hf"
    lora_rank: int = 8
    lora_targets: tuple[str, ...] = ("q_proj", "v_proj")
    lora_dropout: float = 0.0
    adapter_dtype: Literal["fp32", "bf16"] = "fp32"
    quantization: Quantization = "nf4"
    kbit_fp32: bool = False
    fp32_stream: bool = False
    kv_cache: bool = False
    quantized_inputs: Literal["none", "one_step", "two_steps"] = "none"
    quantize_head: bool = False
    stack: Literal["transformers", "litgpt", "torchtune"] = "transformers"
    experts: Literal["grouped", "looped"] = "grouped"
    context_mib: int = 512
    gpus: int = 1
    sharding: Sharding = "none"
    shard_size: int = 0
    unsharded_gradients: bool = False
    prefetch: bool = True
    tensor_parallel: int = 1
    sequence_parallel: bool = False
    offload: Offload = "none"

    def __post_init__(self) -> None:
        for field in fields(self):
            self._check_type(field.name, getattr(self, field.name))
        self._check_ranges()
        self._check_combinations()

    def _check_type(self, name: str, value: Any) -> None:
        kind = _TYPES[name]
        if get_origin(kind) is Literal:
            allowed = get_args(kind)
            if value not in allowed:
                near = get_close_matches(str(value), allowed, n=1)
                hint = f"; did you mean {near[0]!r}?" if near else ""
                raise ValueError(f"{name}: {value!r} is not known; allowed are {', '.join(allowed)}{hint}")
        elif kind is int and (isinstance(value, bool) or not isinstance(value, int)):
            raise ValueError(f"{name}: {value!r} is not a whole number")
        elif kind is bool and not isinstance(value, bool):
            raise ValueError(f"{name}: {value!r} is neither True nor False")

    def _check_ranges(self) -> None:
        for name, least, most in (
            ("micro_batch", 1, 65_536),
            ("seq_len", 1, 16_777_216),
            ("accumulation", 1, 1_000_000),
            ("lora_rank", 1, 65_536),
            ("gpus", 1, 1_000_000),
            ("tensor_parallel", 1, 1_024),
            ("shard_size", 0, 1_000_000),
            ("context_mib", 0, 65_536),
        ):
            value = getattr(self, name)
            if not least <= value <= most:
                raise ValueError(f"{name}: {value} is not between {least} and {most}")
        if not isinstance(self.lora_dropout, (int, float)) or not 0 <= self.lora_dropout < 1:
            raise ValueError(f"lora_dropout: {self.lora_dropout!r} is not a probability from 0 up to, not including, 1")
        if not self.lora_targets:
            raise ValueError(f"lora_targets: at least one is needed; allowed are {', '.join(TARGETS)}")
        for target in self.lora_targets:
            if target not in TARGETS:
                near = get_close_matches(str(target), TARGETS, n=1)
                hint = f"; did you mean {near[0]!r}?" if near else ""
                raise ValueError(f"lora_targets: {target!r} is not known; allowed are {', '.join(TARGETS)}{hint}")

    def _check_combinations(self) -> None:
        if self.gpus == 1 and self.sharding != "none":
            raise ValueError(f"sharding: {self.sharding!r} needs gpus of 2 or more; with 1 it is 'none'")
        if self.gpus % self.tensor_parallel:
            raise ValueError(f"tensor_parallel: {self.tensor_parallel} does not divide gpus = {self.gpus}")
        if self.gpus > self.tensor_parallel and self.sharding == "none":
            raise ValueError(
                f"sharding: {self.gpus // self.tensor_parallel} replicas of the model need one of "
                "ddp, zero1, zero2, zero3, fsdp, fsdp1, hybrid"
            )
        if self.sequence_parallel and self.tensor_parallel == 1:
            raise ValueError("sequence_parallel: it needs tensor_parallel of 2 or more")
        if self.sharding == "hybrid":
            if self.shard_size < 2 or self.replicas % self.shard_size:
                raise ValueError(
                    f"shard_size: hybrid sharding needs a number from 2 on that divides {self.replicas}, "
                    f"not {self.shard_size}"
                )
        elif self.shard_size:
            raise ValueError("shard_size: only sharding 'hybrid' has one")
        if self.offload != "none" and self.optimizer == "none":
            raise ValueError(f"offload: {self.offload!r} has nothing to move, since optimizer is 'none'")
        if self.offload == "parameters" and self.sharding not in ("zero3", "fsdp", "fsdp1", "hybrid"):
            raise ValueError("offload: 'parameters' needs sharding zero3, fsdp, fsdp1 or hybrid")
        if self.optimizer_in_backward and self.accumulation > 1:
            raise ValueError("optimizer_in_backward: it cannot be combined with accumulation, which keeps gradients")
        if self.optimizer_in_backward and self.sharding in ("zero1", "zero2", "zero3"):
            raise ValueError(f"optimizer_in_backward: sharding {self.sharding!r} steps the optimizer at the end")
        if (
            self.method == "qlora"
            and self.sharding in ("zero3", "fsdp", "fsdp1", "hybrid")
            and (self.quantization == "int8")
        ):
            raise ValueError("quantization: 'int8' weights cannot be sharded; use nf4, or sharding ddp")
        if self.method == "qlora" and self.precision == "fp32":
            raise ValueError("precision: 'fp32' does not go with method 'qlora'; use bf16_pure or autocast")

    @property
    def tokens(self) -> int:
        """Tokens of one micro-batch on one GPU."""
        return self.micro_batch * self.seq_len

    @property
    def replicas(self) -> int:
        """How many GPUs share the data: all GPUs over the tensor-parallel ones."""
        return self.gpus // self.tensor_parallel

    @property
    def shards(self) -> int:
        """Over how many GPUs what is sharded is cut."""
        if self.sharding in ("none", "ddp"):
            return 1
        return self.shard_size if self.sharding == "hybrid" else self.replicas

    @property
    def shards_weights(self) -> bool:
        """Whether a GPU keeps only its shard of the weights."""
        return self.sharding in ("zero3", "fsdp", "fsdp1", "hybrid")

    @property
    def shards_gradients(self) -> bool:
        """Whether a GPU keeps only its shard of the gradients."""
        return self.sharding == "zero2" or (self.shards_weights and not self.unsharded_gradients)

    @property
    def targets(self) -> tuple[str, ...]:
        """The projections that carry adapters, such as ``("q", "v")``; none unless the method has adapters."""
        if self.method == "full":
            return ()
        wanted = {part for target in self.lora_targets for part in TARGETS[target]}
        return tuple(part for part in ("q", "k", "v", "qkv", "o", "gate", "up", "down", "head") if part in wanted)

    def but(self, **changes: Any) -> Run:
        """The same run with some fields changed."""
        return replace(self, **changes)


_TYPES = get_type_hints(Run)
