"""The public estimators of training memory, each as a function of a model and a run.

A function returns bytes on one GPU, or None where the estimator has no setting for the method, the sharding, the
offload or the checkpointing. What a tool does not ask is left at its default. The real package is called where there
is a light one on PyPI; the others are their published formulas.
"""

from __future__ import annotations

from collections.abc import Callable

from rankzero.vram import Model, Run

GIB = 2**30
#: Estimators that are not compared, and why.
LEFT_OUT = {
    "gpu_poor": "a web page, whose training formula takes no checkpointing, flash attention or grouped heads",
    "Unsloth Studio": "part of an application; no package to call",
    "llm-analysis": "a package with pins of 2023; it knows no LoRA",
    "Megatron's report": "for Megatron's own layouts; no row is of one",
}


def fitcheck(model: Model, run: Run) -> float | None:
    """fitcheck-llm, the package: one GPU, gated dense decoders, full, LoRA and QLoRA; tensors, without its overhead."""
    from fitcheck.config_parser import ModelConfig
    from fitcheck.estimator import TrainingConfig, estimate
    from fitcheck.gpu_db import GPU_DB

    if run.gpus > 1 or run.offload != "none" or run.optimizer not in ("adamw", "adamw_fused"):
        return None
    if model.experts > 1 or not model.gated or run.checkpointing not in ("none", "full") or run.optimizer_in_backward:
        return None
    sizes = ModelConfig(
        name=model.name,
        num_params=model.parameters,
        hidden_size=model.hidden,
        num_layers=model.layers,
        num_attention_heads=model.heads,
        num_kv_heads=model.kv_heads,
        intermediate_size=model.ffn,
        vocab_size=model.vocab,
        head_dim=model.head_dim,
        tie_word_embeddings=model.tied,
    )
    names = {"q": "q_proj", "k": "k_proj", "v": "v_proj", "o": "o_proj"}
    names |= {"gate": "gate_proj", "up": "up_proj", "down": "down_proj"}
    targets = [name for target in model.adapted(run) for name in _parts(target, names)]
    if run.method != "full" and not targets:
        return None
    report = estimate(
        sizes,
        TrainingConfig(
            precision="fp32" if run.precision == "fp32" else "bf16",
            quantization="nf4" if run.method == "qlora" else "none",
            double_quant=run.method == "qlora" and run.quantization == "nf4",
            optimizer="adamw",
            optimizer_dtype="bf16" if run.precision == "bf16_pure" and run.method == "full" else "fp32",
            batch_size=run.micro_batch,
            seq_len=run.seq_len,
            lora_rank=None if run.method == "full" else run.lora_rank,
            lora_targets=targets or ["q_proj"],
            grad_checkpoint=run.checkpointing == "full",
            flash_attn=run.attention != "eager",
        ),
        GPU_DB["a100-80"],
    )
    return (report.total_mib - report.overhead_mib) * 2**20


def _parts(target: str, names: dict[str, str]) -> list[str]:
    if target == "qkv":
        return [names["q"], names["k"], names["v"]]
    return [names[target]] if target in names else []


def accelerate(model: Model, run: Run) -> float | None:
    """accelerate estimate-memory, the package's own function: full training with Adam on one GPU, batch 1."""
    from accelerate.commands.estimate import estimate_training_usage

    if run.method != "full" or run.gpus > 1 or run.offload != "none" or run.optimizer_in_backward:
        return None
    if run.checkpointing != "none" or not run.optimizer.startswith("adamw") or "8bit" in run.optimizer:
        return None
    precision = "float32" if run.precision == "fp32" else "bfloat16"
    return max(estimate_training_usage(4 * model.parameters, precision).values())


def alloc(model: Model, run: Run) -> float | None:
    """alloc, the package: full training on one GPU."""
    from alloc import ghost

    if run.method != "full" or run.gpus > 1 or run.offload != "none" or run.checkpointing != "none":
        return None
    report = ghost(
        param_count=model.parameters,
        dtype="float32" if run.precision == "fp32" else "bfloat16",
        batch_size=run.micro_batch,
        seq_length=run.seq_len,
        hidden_dim=model.hidden,
    )
    return report.total_gb * GIB


def deepspeed(model: Model, run: Run) -> float | None:
    """DeepSpeed's estimate_zero2/3_model_states_mem_needs: 2 P + 18 P/N for stage 2, 4 × the largest layer + 18 P/N
    for stage 3; offloaded 2 P and 4 × the largest layer. Of full training; it leaves activations out."""
    if run.method != "full" or run.tensor_parallel > 1 or run.optimizer_in_backward:
        return None
    parameters, largest = model.parameters, max(model.embedding, model.layer)
    if run.sharding == "zero2":
        return 2 * parameters + (0 if run.offload == "optimizer" else 18 * parameters / run.shards)
    if run.sharding in ("zero3", "fsdp", "fsdp1"):
        return 4 * largest + (0 if run.offload != "none" else 18 * parameters / run.shards)
    return None


def eleuther(model: Model, run: Run) -> float | None:
    """EleutherAI's cookbook, calc_transformer_mem: 2 P weights, 4 P gradients, 12 P states, cut as the stage says, and
    34 bytes per token, hidden element and layer of activations, with its 5 a s/h more unless checkpointed."""
    if run.method != "full" or run.offload != "none" or run.optimizer_in_backward:
        return None
    shards, stage = run.shards, {"zero1": 1, "zero2": 2, "zero3": 3, "fsdp": 3, "fsdp1": 3}.get(run.sharding, 0)
    weights = 2 * model.parameters / run.tensor_parallel / (shards if stage == 3 else 1)
    gradients = 4 * model.parameters / run.tensor_parallel / (shards if stage >= 2 else 1)
    states = 12 * model.parameters / run.tensor_parallel / (shards if stage >= 1 else 1)
    per_token = 34.0 if run.checkpointing == "full" else 34 + 5 * model.heads * run.seq_len / model.hidden
    return weights + gradients + states + run.tokens * model.hidden * model.layers * per_token


def llama_factory(model: Model, run: Run) -> float | None:
    """LLaMA-Factory's table of hardware requirements: 18, 8, 2 and 0.5 GB per billion parameters."""
    if run.optimizer_in_backward or run.tensor_parallel > 1:
        return None
    per_parameter = {"full": 8.0 if run.precision == "bf16_pure" else 18.0, "lora": 2.0, "qlora": 0.5}[run.method]
    return per_parameter * model.parameters / (run.shards if run.shards_weights else 1)


def furiousteabag(model: Model, run: Run) -> float | None:
    """furiousteabag's vram-calculator: full training, weights, gradients and Adam in mixed precision or fp32, written
    out activations, and logits of 8 bytes; without checkpointing."""
    if run.method != "full" or run.checkpointing != "none" or run.offload != "none" or run.precision == "bf16_pure":
        return None
    states = (18 if run.precision != "fp32" else 16) * model.parameters / run.shards
    element = 4 if run.precision == "fp32" else 2
    layer = run.tokens * model.hidden * (34 * element / 2) + 5 * model.heads * run.seq_len * run.tokens * element / 2
    return states + model.layers * layer + 8 * model.vocab * run.tokens


def hf_vram_calc(model: Model, run: Run) -> float | None:
    """hf-vram-calc: training is 4 × 1.3 times the weights, LoRA 1.2 times, both on one GPU."""
    if run.gpus > 1 or run.offload != "none" or run.checkpointing != "none":
        return None
    weights = model.parameters * (4 if run.precision == "fp32" else 0.5 if run.method == "qlora" else 2)
    return weights * (4 * 1.3 if run.method == "full" else 1.2)


PEERS: dict[str, Callable[[Model, Run], float | None]] = {
    "fitcheck-llm": fitcheck,
    "accelerate": accelerate,
    "alloc": alloc,
    "DeepSpeed": deepspeed,
    "EleutherAI cookbook": eleuther,
    "LLaMA-Factory table": llama_factory,
    "furiousteabag": furiousteabag,
    "hf-vram-calc": hf_vram_calc,
}
