"""The rule of thumb for GPT with dropout.

says: 34
"""

def activation_bytes(config, micro_batch, seq_len, checkpointing):
    h, layers = config["hidden_size"], config["num_hidden_layers"]
    return 34 * micro_batch * seq_len * h * layers
