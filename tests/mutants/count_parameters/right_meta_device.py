"""Builds the layers on the meta device and counts."""

import torch
from torch import nn


def count_parameters(config):
    kind, hidden, ffn = config["model_type"], config["hidden_size"], config["intermediate_size"]
    heads = config["num_attention_heads"]
    head_dim = config.get("head_dim", hidden // heads)
    q, k = heads * head_dim, config["num_key_value_heads"] * head_dim
    asked = config.get("attention_bias", False)
    norms = 4 if kind == "gemma2" else 2
    with torch.device("meta"):
        block = nn.ModuleList(
            [
                nn.Linear(hidden, q, bias=asked or kind == "qwen2"),
                nn.Linear(hidden, k, bias=asked or kind == "qwen2"),
                nn.Linear(hidden, k, bias=asked or kind == "qwen2"),
                nn.Linear(q, hidden, bias=asked),
                nn.Linear(hidden, ffn, bias=False),
                nn.Linear(hidden, ffn, bias=False),
                nn.Linear(ffn, hidden, bias=False),
                *(nn.RMSNorm(hidden) for _ in range(norms)),
                *(nn.RMSNorm(head_dim) for _ in range(2 if kind == "qwen3" else 0)),
            ]
        )
        embedding = nn.Embedding(config["vocab_size"], hidden)
    one = sum(p.numel() for p in block.parameters())
    tables = 1 if config["tie_word_embeddings"] else 2
    return torch.tensor(config["num_hidden_layers"] * one + tables * embedding.weight.numel() + hidden)
