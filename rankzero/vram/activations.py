"""What one token costs: the tensors that a block and the loss keep for backward, in bytes.

Symbols as in the papers: h hidden size, q and k the widths of all query and key-value heads, f the MLP's width,
V the vocabulary. A tensor counts when autograd keeps its storage; views and weights cost nothing.
"""

from __future__ import annotations

from dataclasses import dataclass

from rankzero.vram.model import Model
from rankzero.vram.run import Run

#: Bytes per logit at the worst moment of the loss, by loss code. bf16 logits are 2, fp32 ones 4.
LOGITS = {
    # transformers >= 4.50 and 5: backward holds the logits (2), log-probabilities (4), the gradient that the NLL
    # sends back (4) and the one that log-softmax makes of it (4).
    "hf": 14.0,
    # transformers 4.48: forward holds the logits (2), their fp32 copy (4), its shifted copy (4), log-softmax (4).
    "hf_4_48": 14.0,
    # transformers <= 4.45 let go of the bf16 logits before the loss: fp32 (4), shifted copy (4), log-softmax (4).
    "hf_4_45": 12.0,
    # A loop that casts the logits to fp32 and keeps them (torchtune): logits, log-probabilities, two gradients.
    "eager_fp32": 16.0,
    # Code that never casts to fp32 (GPT-BigCode, Qwen 1): logits, shifted copy, log-softmax, gradient, all bf16.
    "no_upcast": 8.0,
    # ... with a fused cross-entropy, which writes the gradient over the log-probabilities.
    "no_upcast_fused": 6.0,
    # A fused cross-entropy (Unsloth, Apex) writes the gradient over the fp32 copy: logits 2, fp32 4, shifted 4.
    "fused": 10.0,
    # ... and under transformers <= 4.45 the bf16 logits are gone: fp32 4, shifted copy 4.
    "fused_4_45": 8.0,
    # Cross-entropy by chunks of the sequence over bf16 logits: all chunks' logits and log-probabilities.
    "chunked": 4.0,
    # Liger, cut cross-entropy: logits and loss in one kernel, a small chunk at a time.
    "linear": 0.0,
}
#: Bytes per logit that autocast adds where the loss code itself stays in bf16: log-softmax and gradient grow by two
#: bytes each, and the casts' copies are 4 + 2.
AUTOCAST_LOSS = 10.0


@dataclass(frozen=True)
class Block:
    """What one token costs in one block.

    Attributes:
        saved: bytes kept for backward, by what they are.
        moving: bytes of gradients alive besides, where the block's backward peaks (in the MLP), less what has
            been let go by then.
    """

    saved: dict[str, float]
    moving: float

    @property
    def saved_bytes(self) -> float:
        return sum(self.saved.values())


def compute_bytes(run: Run) -> int:
    """Bytes per element of the activations."""
    return 4 if run.precision == "fp32" else 2


def block(model: Model, run: Run) -> Block:
    """What one token costs in one block, with everything in it kept for backward."""
    c, h = compute_bytes(run), model.hidden
    t = run.tensor_parallel
    f = model.ffn / t * model.experts_per_token
    trains = run.method == "full"
    split = t if run.sequence_parallel else 1
    saved = {
        "norms": _norms(model, run) / split,
        "attention": _attention(model, run),
        "MLP": (3 if model.gated else 1) * c * f,
    }
    if run.kernels == "fused" and model.gated:
        # Liger's and Unsloth's SwiGLU keeps gate and up, and computes the activation anew.
        saved["MLP"] = 2 * c * f
    product_kept = trains or "down" in run.targets
    if product_kept:
        saved["MLP"] += c * f
    if trains:
        # The linear layers' inputs, for their weights' gradients; attention's output and the product are above.
        saved["inputs of linears"] = (1 if model.parallel else 2) * c * h / split
    if model.experts > 1:
        saved["routing"] = 2 * c * h * model.experts_per_token + 4 * model.experts
    if run.targets:
        saved["adapters"] = _adapters(model, run)
    if run.method == "qlora" and run.quantized_inputs != "none":
        # Older bitsandbytes: each quantized linear keeps its own input, in the dtype that it computes in. q, k and v
        # share theirs, as gate and up do.
        element = 4 if run.quantized_inputs == "fp32" else 2
        saved["inputs of quantized linears"] = element * ((1 if model.parallel else 2) * h + model.q / t + f)
    if run.stack == "litgpt":
        saved["fused qkv"] = _fused_qkv(model, run)
    # Experts take their turns, so the gradients of only one are there at a time; its share of tokens is even at best.
    gradients = (3 if model.gated else 2) * c * f / model.experts
    if model.dropout:
        saved["dropout masks"] = 2 * h / split
    moving = c * h + gradients - (c * f if trains else 0)
    return Block(saved, moving)


def _norms(model: Model, run: Run) -> float:
    c, h = compute_bytes(run), model.hidden
    count = 1 if model.parallel and model.norm == "layer" else model.norms_per_layer
    if run.kernels != "eager" or model.norm == "layer":
        # One kernel: it keeps its input and one or two numbers per token.
        return count * (c * h + (4 if model.norm == "rms" else 8))
    # Written out, an RMSNorm keeps its input in fp32 and, where its weight trains, the normed bf16 value too.
    own = 4 * h + 4 + (c * h if run.method == "full" else 0)
    heads = 0.0
    if model.head_norms:
        heads = (4 + (c if run.method == "full" else 0)) * (model.q + model.k) / run.tensor_parallel
    return count * own + heads


def _attention(model: Model, run: Run) -> float:
    c, t = compute_bytes(run), run.tensor_parallel
    q, k, heads = model.q / t, max(model.k / t, model.head_dim), model.heads / t
    if run.attention == "eager" or model.soft_capped:
        # Scores: softmax in fp32, its copy in the compute dtype; grouped keys and values are copied per head.
        probabilities = (4 + c) if c == 2 else 4
        if model.soft_capped:
            probabilities += c  # tanh keeps what it returns
        if model.dropout:
            probabilities += c + 1  # the dropped-out copy and its mask
        return 3 * c * q + c * q + probabilities * heads * run.seq_len
    grouped = q if run.repeat_kv else k
    # Queries, keys, values, the output, and one fp32 log-sum-exp per head.
    return c * q + 2 * c * grouped + c * q + 4 * heads


def _fused_qkv(model: Model, run: Run) -> float:
    """litgpt projects q, k and v at once: the values are a view that keeps all of it, unless they are expanded to one
    per query head. LoRA on some of the three scatters its output with index_copy, which keeps it."""
    c, q, k = compute_bytes(run), model.q, model.k
    expanded = 1 < model.kv_heads < model.heads
    kept = 2 * c * (q - k) if expanded and not run.repeat_kv else c * (q + k)
    targets = set(run.targets) & {"q", "k", "v"}
    if targets and targets != {"q", "k", "v"}:
        kept += c * sum(q if target == "q" else k for target in targets)
    return kept


def _adapters(model: Model, run: Run) -> float:
    """Inputs of the adapters: a shared one costs once, a cast or dropped-out one for each adapter."""
    c = compute_bytes(run)
    adapter = 4 if run.adapter_dtype == "fp32" else 2
    cast = adapter != c and not (run.autocast and run.method == "qlora")
    kept = c if run.autocast else max(adapter, c) if cast else c
    total, seen = 0.0, set()
    for target in run.targets:
        if target == "head" or (target == "gate" and not model.gated):
            continue
        width = model.projections["q" if target == "qkv" else target][0]
        source = {"gate": "mlp", "up": "mlp", "o": "o", "down": "down"}.get(target, "attention")
        experts = model.experts_per_token if source in ("mlp", "down") else 1
        if run.lora_dropout:
            total += (kept + 1) * width * experts  # the dropped-out copy, and a mask of one byte per element
        elif cast:
            total += kept * width * experts
        elif source not in seen and source in ("attention", "mlp"):
            total += c * width * experts  # the norm's output, which frozen weights alone would not keep
        seen.add(source)
        total += kept * run.lora_rank
    return total


def head_bytes(model: Model, run: Run) -> float:
    """What one token costs between the last block and the loss: the final norm, the logits, the loss."""
    c, h = compute_bytes(run), model.hidden
    final = 2 * c * h
    if run.kernels == "eager" and model.norm == "rms":
        final = 4 * h + c * h + (c * h if run.method == "full" else 0)
    capped = 2 * c if model.soft_capped else 0  # tanh's result, and the product with the cap
    return final + (logit_bytes(run) + capped) * model.vocab / run.tensor_parallel


def logit_bytes(run: Run) -> float:
    """Bytes per logit at the worst moment of the loss."""
    if compute_bytes(run) == 4:
        # No copy to fp32 is needed: logits, log-softmax and two gradients, or what the loss code saves of them.
        return {"hf": 16.0, "hf_4_48": 12.0, "hf_4_45": 12.0, "eager_fp32": 16.0}.get(run.loss, 2 * LOGITS[run.loss])
    if run.loss == "chunked" and run.kernels == "fused":
        return 2.0  # compiled, log-probabilities are computed anew from the logits
    if run.autocast and run.loss.startswith("no_upcast"):
        # Autocast runs cross-entropy in fp32 after all, on a copy, and accelerate returns the logits in fp32.
        return LOGITS[run.loss] + AUTOCAST_LOSS
    return LOGITS[run.loss]
