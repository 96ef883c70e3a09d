"""The formulas against the real models: traced on tensors without memory, and measured on real ones."""

import random

import pytest

pytest.importorskip("transformers")

from rankzero.vram import Run, estimate, measure, trace

SMALL = {
    "vocab_size": 1000,
    "hidden_size": 512,
    "intermediate_size": 1536,
    "num_hidden_layers": 4,
    "num_attention_heads": 8,
    "num_key_value_heads": 2,
    "tie_word_embeddings": False,
}
CONFIGS = {
    "llama": {**SMALL, "model_type": "llama"},
    "qwen2": {**SMALL, "model_type": "qwen2", "tie_word_embeddings": True},
    "mistral": {**SMALL, "model_type": "mistral", "head_dim": 96},
    "qwen3": {**SMALL, "model_type": "qwen3", "head_dim": 64},
    "gemma": {**SMALL, "model_type": "gemma", "head_dim": 64, "tie_word_embeddings": True},
    "phi3": {**SMALL, "model_type": "phi3", "pad_token_id": 0},
    "mixtral": {**SMALL, "model_type": "mixtral", "num_local_experts": 4, "num_experts_per_tok": 2},
    "phi": {**SMALL, "model_type": "phi", "num_key_value_heads": 8},
    "gpt_neox": {**SMALL, "model_type": "gpt_neox"},
    "gpt2": {
        "model_type": "gpt2",
        "vocab_size": 1000,
        "n_embd": 512,
        "n_layer": 4,
        "n_head": 8,
        "n_positions": 2048,
        "resid_pdrop": 0.0,
        "attn_pdrop": 0.0,
        "embd_pdrop": 0.0,
    },
}
ALL = ("all-linear",)
RUNS = {
    "full": Run(precision="bf16_pure"),
    "full, eager attention": Run(precision="bf16_pure", attention="eager"),
    "full, checkpointing": Run(precision="bf16_pure", checkpointing="full"),
    "full, SGD": Run(precision="bf16_pure", optimizer="sgd", checkpointing="full"),
    "full, master copies": Run(precision="bf16_mixed"),
    "full, autocast": Run(precision="autocast", autocast=True),
    "full, autocast, checkpointing": Run(precision="autocast", autocast=True, checkpointing="full"),
    "full, fp32": Run(precision="fp32"),
    "LoRA": Run(method="lora", precision="bf16_pure"),
    "LoRA, checkpointing": Run(method="lora", precision="bf16_pure", checkpointing="full"),
    "LoRA, bf16 adapters": Run(method="lora", precision="bf16_pure", adapter_dtype="bf16", lora_targets=ALL),
    "QLoRA": Run(method="qlora", precision="bf16_pure"),
    "QLoRA, checkpointing": Run(method="qlora", precision="bf16_pure", checkpointing="full", lora_targets=ALL),
}
#: Where the formula is up to 8 % off, on the safe side: which of the pieces of a GELU written out in Python, or of a
#: fused gate and up, meet the adapters' fp32 copies depends on the order of backward.
EXCEPTIONS = {
    ("phi", "QLoRA, checkpointing"): 0.06,
    ("phi3", "QLoRA, checkpointing"): 0.06,
    ("gpt2", "QLoRA, checkpointing"): 0.08,
}


@pytest.mark.parametrize("kind", RUNS)
@pytest.mark.parametrize("family", CONFIGS)
def test_formula_and_trace_agree(family, kind):
    run = RUNS[kind].but(micro_batch=4, seq_len=512)
    fused = {"phi3": ("qkv",), "gpt2": ("qkv",), "gpt_neox": ("qkv",)}
    if run.method != "full" and family in fused and run.lora_targets != ALL:
        run = run.but(lora_targets=fused[family])
    if family == "mixtral" and run.precision in ("fp32", "autocast"):
        pytest.skip("transformers' grouped experts multiply in bf16 only where there is no GPU")
    if family == "mixtral" and run.targets and run.lora_targets == ALL:
        pytest.skip("adapters on grouped experts have no formula, and are refused")
    formula, traced = estimate(CONFIGS[family], run).allocated_bytes, trace(CONFIGS[family], run).peak_bytes
    assert formula == pytest.approx(traced, rel=EXCEPTIONS.get((family, kind), 0.03))


#: Of models of a few MiB, where a single tensor is some per cent.
SMALL_MODELS = 0.06


def small_decoder(rng: random.Random) -> dict:
    """A small decoder of random shape and family."""
    family = rng.choice(["llama", "qwen2", "mistral", "qwen3", "gemma", "phi3"])
    head_dim, kv_heads = rng.choice([32, 64]), rng.choice([1, 2, 4])
    heads = kv_heads * rng.choice([1, 2])
    free = family in ("mistral", "qwen3", "gemma")
    hidden = 64 * rng.randint(2, 6) if free else head_dim * heads
    config = {
        "model_type": family,
        "vocab_size": rng.choice([500, 1000, 4000]),
        "hidden_size": hidden,
        "intermediate_size": hidden * rng.choice([2, 3, 4]),
        "num_hidden_layers": rng.randint(2, 4),
        "num_attention_heads": heads,
        "num_key_value_heads": kv_heads,
        "tie_word_embeddings": rng.random() < 0.5,
    }
    if free:
        config["head_dim"] = head_dim
    return {**config, "pad_token_id": 0} if family == "phi3" else config


def small_run(rng: random.Random, family: str, method: str, checkpointing: str) -> Run:
    """A run of that method and random size. phi3 has its queries, keys and values in one matrix."""
    targets = ("qkv", "o_proj") if family == "phi3" else rng.choice([("q_proj", "v_proj"), ALL])
    return Run(
        method=method,
        precision="bf16_pure",
        checkpointing=checkpointing,
        micro_batch=rng.choice([1, 2]),
        seq_len=rng.choice([128, 256]),
        lora_targets=targets,
        lora_rank=rng.choice([4, 8]),
    )


@pytest.mark.parametrize("checkpointing", ["none", "full"])
@pytest.mark.parametrize("method", ["full", "lora"])
@pytest.mark.parametrize("seed", range(10))
def test_formula_and_measurement_agree(seed, method, checkpointing):
    rng = random.Random(f"{seed} {method} {checkpointing}")
    config = small_decoder(random.Random(seed))
    run = small_run(rng, config["model_type"], method, checkpointing)
    assert estimate(config, run).allocated_bytes == pytest.approx(measure(config, run), rel=SMALL_MODELS)


@pytest.mark.parametrize("seed", range(6))
def test_the_trace_of_a_cpus_kernels_is_what_is_measured(seed):
    rng = random.Random(seed)
    config = small_decoder(rng)
    run = small_run(rng, config["model_type"], rng.choice(["full", "lora"]), rng.choice(["none", "full"]))
    assert trace(config, run, kernels="cpu").peak_bytes == pytest.approx(measure(config, run), rel=0.01)


@pytest.mark.parametrize("checkpointing", ["none", "full"])
@pytest.mark.parametrize("seed", range(5))
def test_qlora_by_formula_is_what_is_traced(seed, checkpointing):
    rng = random.Random(seed)
    config = small_decoder(rng)
    run = small_run(rng, config["model_type"], "qlora", checkpointing)
    # In models of a few MiB, which of the adapters' fp32 pieces meet in the recomputed block decides over the peak.
    slack = 0.09 if checkpointing == "full" else SMALL_MODELS
    assert estimate(config, run).allocated_bytes == pytest.approx(trace(config, run).peak_bytes, rel=slack)
