"""Which code a published measurement ran: facts that its source pins or documents, each with its origin."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any


@dataclass(frozen=True)
class Software:
    """The settings of a run that a table's columns do not tell.

    Attributes:
        hf_loss, fused_loss, chunked_loss, plain_loss: what these mean in the source's code and its versions.
        adamw: what a plain "AdamW" is: foreach (``adamw``) or ``adamw_fused``.
        double_quantization: whether "nf4" is quantized twice all the same.
        fsdp: ``fsdp1`` (FullyShardedDataParallel) or ``fsdp`` (fully_shard).
        adapter_dtype, lora_dropout: how the source sets up LoRA.
        kernels: ``fused`` where norms and rotary embedding are fused kernels.
        accumulation: 1, or more where the source accumulates, so that gradients are there in forward.
        repeat_kv, quantized_inputs, quantize_head, stack, context_mib: see :class:`rankzero.vram.run.Run`.
        variable_length: whether batches differ in length.
        norm, parallel, shared_norm, experts, experts_per_token, norms_per_layer, dropout, soft_capped: of the model.
    """

    hf_loss: str = "hf_4_48"
    fused_loss: str = "fused"
    chunked_loss: str = "chunked"
    plain_loss: str = "fp32"
    adamw: str = "adamw"
    fsdp: str = "fsdp"
    prefetch: bool = True
    adapter_dtype: str = "fp32"
    lora_dropout: float = 0.0
    kernels: str = "eager"
    repeat_kv: bool = False
    kbit_fp32: bool = False
    fp32_stream: bool = False
    kv_cache: bool = False
    double_quantization: bool = False
    quantized_inputs: str = "none"
    quantize_head: bool = False
    stack: str = "transformers"
    accumulation: int = 1
    context_mib: int = 512
    soft_capped: bool = False
    variable_length: bool = False
    norm: str = "rms"
    parallel: bool = False
    shared_norm: bool = False
    experts: int = 1
    experts_per_token: int = 1
    norms_per_layer: int = 2
    dropout: bool = False


#: A piece of ``source_ref`` → what that source is known to have run.
SOFTWARE: dict[str, dict[str, Any]] = {
    # scripts/benchmarks/scenarios*.yaml: LoRA r 16 on q, k, v, o with dropout 0.1; accelerate's FSDP 1;
    # refs/requirements*.txt: transformers 4.45 for the granite and liger tables, 4.48 for a100_80gb.csv.
    "fms-acceleration": {"lora_dropout": 0.1, "fsdp": "fsdp1", "prefetch": False},
    "a100_80gb_liger.csv": {"hf_loss": "hf_4_45", "fused_loss": "fused_4_45"},
    "a100_80gb_granite.csv": {"hf_loss": "hf_4_45", "fused_loss": "fused_4_45"},
    # torchtune: bf16 adapters, one key and value per query head, fused AdamW in the recipes' yaml; fully_shard.
    "torchtune": {"stack": "torchtune", "adapter_dtype": "bf16", "repeat_kv": True, "adamw": "adamw_fused"},
    # ... whose recipes of May 2024 held the fp32 logits in a variable.
    "torchtune README.md @0217d44c2": {"plain_loss": "fp32_kept"},
    "torchtune docs/source/tutorials": {"plain_loss": "fp32_kept"},
    # xtuner 1: targets are shifted with the data, and the model returns its bf16 logits; fused AdamW.
    "InternLM/xtuner": {"hf_loss": "no_upcast_kept", "adamw": "adamw_fused"},
    # config_hub/finetune/*.yaml: dropout 0.05, precision bf16-true (adapters too); Fabric's FSDPStrategy (FSDP 1).
    "litgpt": {
        "stack": "litgpt",
        "quantize_head": True,
        "chunked_loss": "fabric_chunked",
        "adapter_dtype": "bf16",
        "lora_dropout": 0.05,
        "fsdp": "fsdp1",
    },
    # The tables of 2023 name bitsandbytes 0.41.1, litgpt 0.2 to 0.5 pin 0.42.0; there the longest sample comes first.
    "resource-tables.md": {"quantized_inputs": "one_step"},
    # Recipes accumulate to a global batch, all of one length.
    "config_hub/finetune": {"quantized_inputs": "two_steps", "accumulation": 2},
    # fsdp_qlora/train.py: --precision bf16 casts all to bf16; FullyShardedDataParallel; dropout 0.1 by default; the
    # script holds the model's output; Linear4bit's default quantizes twice; bitsandbytes 0.43.0.
    "fsdp_qlora": {
        "adapter_dtype": "bf16",
        "lora_dropout": 0.1,
        "fsdp": "fsdp1",
        "hf_loss": "hf_4_45_kept",
        "double_quantization": True,
        "quantized_inputs": "one_step",
    },
    # swift v2: lora_dropout_p 0.05; lengths differ from batch to batch; quantized models are prepared by peft.
    "ms-swift": {"lora_dropout": 0.05, "variable_length": True, "hf_loss": "hf_4_45"},
    # torchtitan: fused AdamW, keys and values copied per query head, an fp32 loss; logits are deleted before backward.
    "torchtitan": {"adamw": "adamw_fused", "repeat_kv": True, "hf_loss": "fp32"},
    # peft's method comparison: transformers 4.50 and later, padded batches of varying length (so SDPA has a mask, and
    # copies keys and values).
    "peft/method_comparison": {"hf_loss": "hf", "variable_length": True, "repeat_kv": True},
    # transformers' anatomy page: context measured first; torch 1.10's zero_grad keeps the gradients' memory.
    "model_memory_anatomy.md": {"context_mib": 1343, "accumulation": 2},
    "llama-cookbook": {"adapter_dtype": "bf16", "fsdp": "fsdp1", "hf_loss": "hf_4_45"},
    "huggingface/peft docs": {"fsdp": "fsdp1", "hf_loss": "hf_4_45", "prefetch": False},
}


def software_of(row: dict[str, str]) -> Software:
    """What is known of the code that measured a row."""
    source = f"{row.get('source', '')} {row.get('source_ref', '')}"
    known = Software()
    for piece, facts in SOFTWARE.items():
        if piece in source:
            known = replace(known, **facts)
    facts = {**_from_notes(row), **_from_model(row)}
    if known.stack == "litgpt" and row.get("method") == "full":
        facts["chunked_loss"] = "fabric"  # litgpt's full.py does not chunk the LM head
    if row.get("model", "").lower().startswith(("santacoder", "starcoder")):
        # GPT-BigCode does not switch its cache off under checkpointing; under autocast LayerNorm and Linear4bit give
        # fp32.
        facts |= {"kv_cache": True, "fp32_stream": row.get("method") == "qlora"}
    if "ms-swift" in source and row.get("method") == "qlora":
        facts["kbit_fp32"] = True
    return replace(known, **facts)


def _from_notes(row: dict[str, str]) -> dict[str, Any]:
    notes = row.get("notes", "")
    facts: dict[str, Any] = {}
    if "foak" in notes:  # fms-acceleration's fused operators and kernels: norms, rotary embedding, loss
        facts["kernels"] = "fused_norms"
    if "prepare_model_for_kbit_training" in notes and row.get("n_gpus") == "1":
        facts["kbit_fp32"] = True  # under FSDP mixed precision casts back
    if "FSDP2" in notes:
        facts["fsdp"] = "fsdp"
    return facts


def _from_model(row: dict[str, str]) -> dict[str, Any]:
    name = row.get("model", "").lower()
    facts: dict[str, Any] = {}
    if name.startswith(("santacoder", "starcoder", "phi-1", "phi-2", "falcon", "stablelm-alpha", "bert", "bloom")) or (
        name.startswith(("gpt", "pythia", "opt", "vit", "t5", "t0"))
    ):
        facts["norm"] = "layer"
    if name.startswith(("phi-1", "phi-2", "falcon", "stablelm-alpha", "pythia", "gpt-neox", "gpt-j")):
        facts["parallel"] = True
    facts["shared_norm"] = name.startswith(("phi-1", "phi-2", "falcon"))
    if name.startswith("mixtral-8x") or "MoE 8 experts top-2" in row.get("notes", ""):
        facts |= {"experts": 8, "experts_per_token": 2}
    if name.startswith(("bert", "gpt2", "santacoder", "starcoder")):
        facts["dropout"] = True
    if name.startswith("gemma2"):
        facts |= {"norms_per_layer": 4, "soft_capped": True}
    if name.startswith(("mistral", "mixtral")) and "fms-acceleration" in row.get("source", ""):
        # MistralFlashAttention2 of transformers 4.4x copies keys and values for each query head; Llama's does not.
        facts["repeat_kv"] = True
    if name.startswith(("santacoder", "starcoder", "qwen-")):
        # GPT-BigCode's and Qwen 1's own loss code never casts the logits to fp32.
        facts |= {"hf_loss": "no_upcast", "fused_loss": "no_upcast_fused"}
    return facts
