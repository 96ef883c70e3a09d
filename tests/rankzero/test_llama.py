"""Our written-out Llama against transformers' own, and both against the arithmetic of what autograd keeps."""

import random

import pytest
import torch

from rankzero import saved_tensors
from rankzero.llama import Llama
from rankzero.vram.parameters import count_parameters


def drawn(rng):
    """A random small Llama, wide enough for the small tensors not to count."""
    kv_heads, group, head_dim = rng.choice([1, 2, 4]), rng.choice([1, 2, 4]), rng.choice([32, 64])
    return {
        "model_type": "llama",
        "vocab_size": rng.randint(100, 500),
        "hidden_size": rng.choice([256, 320, 384]),
        "intermediate_size": rng.randrange(256, 1024, 32),
        "num_hidden_layers": rng.randint(1, 4),
        "num_attention_heads": kv_heads * group,
        "num_key_value_heads": kv_heads,
        "head_dim": head_dim,
        "tie_word_embeddings": rng.random() < 0.5,
    }


def original(config):
    transformers = pytest.importorskip("transformers")
    settings = transformers.LlamaConfig(**config, attn_implementation="sdpa")
    return transformers.LlamaForCausalLM(settings)


@pytest.mark.parametrize("seed", range(4))
def test_it_is_transformers_llama(seed):
    config = drawn(random.Random(seed))
    torch.manual_seed(seed)
    ours, theirs = Llama(config), original(config)
    ours.load_state_dict(theirs.state_dict())
    ids = torch.randint(config["vocab_size"], (2, 17))
    torch.testing.assert_close(ours(ids), theirs(ids, use_cache=False).logits)
    assert count_parameters(config) == sum(weight.numel() for weight in ours.parameters())


@pytest.mark.parametrize("checkpointing", [False, True])
@pytest.mark.parametrize("seed", range(4))
def test_it_keeps_the_tensors_that_transformers_llama_keeps(seed, checkpointing):
    config = drawn(random.Random(seed))
    ours, theirs = Llama(config, checkpointing).bfloat16(), original(config).bfloat16()
    if checkpointing:
        theirs.gradient_checkpointing_enable()
        theirs.train()
    ids = torch.randint(config["vocab_size"], (2, 32))
    kept = saved_tensors(theirs.lm_head if False else lambda i: theirs(i, use_cache=False).logits, ids).total_bytes
    # Checkpointed, ours keeps the angles for the second run, which transformers keeps as well, inside its arguments.
    assert saved_tensors(ours, ids).total_bytes == pytest.approx(kept, rel=0.01)
