"""A table of bytes per parameter."""

TABLE = {
    "fp32": (4, 4, 4, 4 + 4),
    "bf16_mixed": (2, 2, 2, 4 + 4 + 4),
    "bf16_pure": (2, 2, 2, 2 + 2),
    "adam8bit": (2, 2, 2, 2 * (1 + 4 / 256)),
    "lora": (2, 4, 4, 8),
    "qlora": (0.5 + 1 / 64 + 4 / (64 * 256), 4, 4, 8),
}


def state_bytes(parameters, trainable, recipe, quantized=None):
    frozen_bytes, own, gradient, states = TABLE[recipe]
    frozen = parameters - trainable
    plain = 0
    if recipe == "qlora" and quantized is not None:
        plain = frozen - quantized
    return dict(
        optimizer=int(states * trainable),
        gradients=int(gradient * trainable),
        weights=int((frozen - plain) * frozen_bytes + plain * 2 + own * trainable),
    )
