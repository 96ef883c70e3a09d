"""No fp32 master copy.

says: master copy is missing
"""

def state_bytes(parameters, trainable, recipe, quantized=None):
    frozen = parameters - trainable
    if recipe == "fp32":
        return {"weights": 4 * parameters, "gradients": 4 * trainable, "optimizer": 8 * trainable}
    if recipe == "bf16_mixed":
        return {"weights": 2 * parameters, "gradients": 2 * trainable, "optimizer": 8 * trainable}
    if recipe == "bf16_pure":
        return {"weights": 2 * parameters, "gradients": 2 * trainable, "optimizer": 4 * trainable}
    if recipe == "adam8bit":
        return {"weights": 2 * parameters, "gradients": 2 * trainable, "optimizer": 2 * (1 + 4 / 256) * trainable}
    in_nf4 = 0
    if recipe == "qlora":
        in_nf4 = frozen if quantized is None else quantized
    nf4 = 0.5 + 1 / 64 + 4 / (64 * 256)
    weights = nf4 * in_nf4 + 2 * (frozen - in_nf4) + 4 * trainable
    return {"weights": round(weights), "gradients": 4 * trainable, "optimizer": 8 * trainable}
