"""Checkpointing forgets the recomputed block.

says: run again in backward is missing
"""

def activation_bytes(config, micro_batch, seq_len, checkpointing):
    h, f = config["hidden_size"], config["intermediate_size"]
    layers, heads = config["num_hidden_layers"], config["num_attention_heads"]
    head_dim = config.get("head_dim") or h // heads
    q, k = heads * head_dim, config["num_key_value_heads"] * head_dim
    tokens = micro_batch * seq_len
    norm = 4 * h + 4 + 2 * h + 2 * h
    attention = 2 * q + 2 * k + 2 * k + 2 * q + 4 * heads
    mlp = 4 * 2 * f
    block = 2 * norm + attention + mlp
    if checkpointing:
        return tokens * (layers * 2 * h)
    return tokens * (layers * block + norm)
