"""The counted parameters are those of transformers' own models, built on the meta device."""

import random

import pytest

from rankzero.vram.parameters import UnknownFamily, count_parameters, families, weights

SMALL = {"hidden_size": 64, "num_hidden_layers": 2, "num_attention_heads": 4, "vocab_size": 100}


def drawn(family, rng):
    """A random small configuration of a family."""
    kv_heads = rng.choice([1, 2, 4])
    heads = kv_heads * rng.choice([1, 2, 4])
    head_dim = rng.choice([8, 16, 32])
    config = {
        "model_type": family,
        "hidden_size": heads * rng.choice([8, 16, 32]),
        "num_hidden_layers": rng.randint(1, 5),
        "num_attention_heads": heads,
        "vocab_size": rng.randint(50, 3000),
        "tie_word_embeddings": rng.random() < 0.5,
    }
    grouped = {"num_key_value_heads": kv_heads, "intermediate_size": rng.randint(30, 300)}
    if family in ("gpt2", "gpt_bigcode"):
        config["n_positions"] = rng.randint(20, 200)
        config["n_inner"] = rng.choice([None, 77])
        if family == "gpt_bigcode":
            config["multi_query"] = rng.random() < 0.5
        return config
    if family == "gpt_neox":
        return config | {"intermediate_size": rng.randint(30, 300), "attention_bias": rng.random() < 0.5}
    config |= grouped
    if family not in ("phi", "phi3", "starcoder2", "qwen2_moe"):
        config["head_dim"] = head_dim
    if family in ("llama", "granite", "qwen3", "gemma", "gemma2", "gemma3_text", "qwen3_moe"):
        config["attention_bias"] = rng.random() < 0.5
    if family in ("llama", "granite"):
        config["mlp_bias"] = rng.random() < 0.5
    if family == "phi":
        config["qk_layernorm"] = rng.random() < 0.5
    if family == "phi3":
        config |= {"pad_token_id": 0}
    if family == "starcoder2":
        config["use_bias"] = rng.random() < 0.5
    if family == "mixtral":
        config["num_local_experts"] = rng.randint(2, 5)
    if family in ("qwen2_moe", "qwen3_moe"):
        config |= {
            "num_experts": rng.randint(2, 5),
            "num_experts_per_tok": 2,
            "moe_intermediate_size": rng.randint(10, 60),
            "decoder_sparse_step": rng.choice([1, 2]),
            "mlp_only_layers": rng.choice([[], [0]]),
        }
        if family == "qwen2_moe":
            config["shared_expert_intermediate_size"] = rng.randint(10, 60)
    return config


def on_meta(config):
    transformers = pytest.importorskip("transformers")
    import torch

    settings = transformers.AutoConfig.for_model(**config)
    with torch.device("meta"):
        return transformers.AutoModelForCausalLM.from_config(settings)


@pytest.mark.parametrize("family", families())
def test_as_many_as_the_model_has(family):
    rng = random.Random(family)
    for _ in range(8):
        config = drawn(family, rng)
        model = on_meta(config)
        model.tie_weights()
        assert count_parameters(config) == sum(weight.numel() for weight in model.parameters()), config


@pytest.mark.parametrize("family", families())
def test_a_missing_key_takes_the_familys_default(family):
    config = {"model_type": family, "num_hidden_layers": 2} | (
        {"hidden_size": 512, "num_attention_heads": 32, "vocab_size": 100, "intermediate_size": 128}
    )
    if family == "phi3":
        config |= {"pad_token_id": 0}
    model = on_meta(config)
    model.tie_weights()
    assert count_parameters(config) == sum(weight.numel() for weight in model.parameters())


@pytest.mark.parametrize(
    ("name", "config", "parameters"),
    [
        (
            "Llama 2 7B",
            {"model_type": "llama", "hidden_size": 4096, "num_hidden_layers": 32, "num_attention_heads": 32}
            | {"intermediate_size": 11008, "vocab_size": 32000},
            6_738_415_616,
        ),
        (
            "Qwen3 0.6B",
            {"model_type": "qwen3", "hidden_size": 1024, "num_hidden_layers": 28, "num_attention_heads": 16}
            | {"num_key_value_heads": 8, "head_dim": 128, "intermediate_size": 3072, "vocab_size": 151936}
            | {"tie_word_embeddings": True},
            596_049_920,
        ),
    ],
)
def test_known_models(name, config, parameters):
    assert count_parameters(config) == parameters


def test_what_cannot_be_counted_is_refused_with_a_reason():
    with pytest.raises(UnknownFamily, match="there are gemma"):
        count_parameters({"model_type": "lama", **SMALL})
    with pytest.raises(ValueError, match="lacks intermediate_size"):
        count_parameters({"model_type": "llama", **SMALL})
    with pytest.raises(ValueError, match="not divisible"):
        count_parameters({"model_type": "llama", **SMALL, "num_attention_heads": 5, "intermediate_size": 9})
    with pytest.raises(ValueError, match="num_key_value_heads: 3 does not divide"):
        count_parameters({"model_type": "llama", **SMALL, "num_key_value_heads": 3, "intermediate_size": 9})
    with pytest.raises(ValueError, match="hidden_size: -64"):
        count_parameters({"model_type": "llama", **SMALL, "hidden_size": -64, "intermediate_size": 9})


def test_weights_say_what_they_are():
    config = {"model_type": "qwen2", **SMALL, "num_key_value_heads": 2, "intermediate_size": 96}
    by_name = {weight.name: weight for weight in weights(config)}
    assert by_name["k_proj"].shape == (32, 64)
    assert by_name["k_proj"].copies == 2
    assert by_name["k_proj.bias"].kind == "bias"
    assert by_name["lm_head"].kind == "head"
