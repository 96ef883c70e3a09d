"""18h + 2q + 4k + 8f + 4 heads + 8 bytes per token and block, and the end."""

def activation_bytes(config: dict, micro_batch: int, seq_len: int, checkpointing: bool) -> int:
    h, f, heads = config["hidden_size"], config["intermediate_size"], config["num_attention_heads"]
    d = config.get("head_dim", h // heads)
    q, k = heads * d, config.get("num_key_value_heads", heads) * d
    layer = 18 * h + 2 * q + 4 * k + 8 * f + 4 * heads + 8
    end = 8 * h + 4 + 8
    per_token = config["num_hidden_layers"] * (2 * h if checkpointing else layer)
    per_token += layer if checkpointing else end
    return per_token * micro_batch * seq_len
