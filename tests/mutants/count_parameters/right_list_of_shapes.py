"""Builds a list of all shapes and adds up their products."""

from math import prod


def count_parameters(config):
    h, f, v = config["hidden_size"], config["intermediate_size"], config["vocab_size"]
    n, m = config["num_attention_heads"], config["num_key_value_heads"]
    d = config.get("head_dim", h // n)
    kind = config["model_type"]
    biases = {"q": kind == "qwen2", "o": False}
    if config.get("attention_bias", False):
        biases = {"q": True, "o": True}
    block = [(h, n * d), (h, m * d), (h, m * d), (n * d, h), (h, f), (h, f), (f, h), (h,), (h,)]
    if biases["q"]:
        block += [(n * d,), (m * d,), (m * d,)]
    if biases["o"]:
        block += [(h,)]
    if kind == "qwen3":
        block += [(d,), (d,)]
    if kind == "gemma2":
        block += [(h,), (h,)]
    rest = [(v, h), (h,)]
    if not config.get("tie_word_embeddings"):
        rest.append((h, v))
    return sum(prod(shape) for shape in rest) + config["num_hidden_layers"] * sum(prod(shape) for shape in block)
