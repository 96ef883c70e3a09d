"""Runs one block and two, and adds up what autograd keeps."""

import torch

import rankzero
from rankzero.llama import Llama


def kept(config, batch, seq):
    model = Llama(config).bfloat16()
    ids = torch.zeros(batch, seq, dtype=torch.long)
    return rankzero.saved_tensors(model, ids).total_bytes


def activation_bytes(config, micro_batch, seq_len, checkpointing):
    config = {**config, "vocab_size": 8}
    one = kept({**config, "num_hidden_layers": 1}, micro_batch, seq_len)
    two = kept({**config, "num_hidden_layers": 2}, micro_batch, seq_len)
    block, layers = two - one, config["num_hidden_layers"]
    if checkpointing:
        return layers * 2 * config["hidden_size"] * micro_batch * seq_len + block
    return one + (layers - 1) * block
