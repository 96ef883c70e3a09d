"""Whole blocks of 64 and of 256, rounded up; a total besides."""

from math import ceil


def nf4(count):
    blocks = ceil(count / 64)
    return ceil(count / 2) + blocks + 4 * ceil(blocks / 256)


def state_bytes(parameters, trainable, recipe, quantized=None):
    frozen = parameters - trainable
    adapters = recipe in ("lora", "qlora")
    width = 4 if recipe == "fp32" or adapters else 2
    weights = (4 if recipe == "fp32" else 2) * frozen + width * trainable
    if recipe == "qlora":
        quantized = frozen if quantized is None else quantized
        weights += nf4(quantized) - 2 * quantized
    moments = {"bf16_pure": 4 * trainable, "adam8bit": 2 * (trainable + 4 * ceil(trainable / 256))}
    optimizer = moments.get(recipe, 8 * trainable)
    if recipe == "bf16_mixed":
        optimizer += 4 * trainable
    gradients = width * trainable
    return {"weights": weights, "gradients": gradients, "optimizer": optimizer, "total": weights + gradients + optimizer}
