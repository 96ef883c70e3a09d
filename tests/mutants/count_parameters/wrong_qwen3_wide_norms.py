"""Norms of queries and keys as wide as all heads.

says: shared by the heads
"""

def count_parameters(config):
    family = config["model_type"]
    hidden, ffn = config["hidden_size"], config["intermediate_size"]
    layers, vocab = config["num_hidden_layers"], config["vocab_size"]
    heads = config["num_attention_heads"]
    kv_heads = config.get("num_key_value_heads") or heads
    head_dim = config.get("head_dim") or hidden // heads
    q, k = heads * head_dim, kv_heads * head_dim
    attention = hidden * q + 2 * hidden * k + q * hidden
    if family == "qwen2":
        attention += q + 2 * k
    elif config.get("attention_bias"):
        attention += q + 2 * k + hidden
    if family == "qwen3":
        attention += q + k
    mlp = 3 * hidden * ffn
    norms = (4 if family == "gemma2" else 2) * hidden
    head = 0 if config["tie_word_embeddings"] else vocab * hidden
    return vocab * hidden + layers * (attention + mlp + norms) + hidden + head
