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
    # transformers >= 4.50 and 5, the model's output let go before backward as by its Trainer: log-probabilities (4),
    # the gradient that the NLL sends back (4), and the one that log-softmax makes of it (4).
    "hf": 12.0,
    # ... in a loop that holds the model's output while it calls backward: the bf16 logits (2) stay.
    "hf_kept": 14.0,
    # transformers 4.48: forward holds the logits (2), their fp32 copy (4), its shifted copy (4), log-softmax (4).
    "hf_4_48": 14.0,
    # transformers <= 4.45 let go of the bf16 logits before the loss: fp32 (4), shifted copy (4), log-softmax (4) ...
    "hf_4_45": 12.0,
    # ... in a script that holds the fp32 logits as well.
    "hf_4_45_kept": 16.0,
    # A loop that casts the logits to fp32 and lets them go (torchtune 0.4): log-probabilities and two gradients ...
    "fp32": 12.0,
    # ... or holds them (torchtune 0.1).
    "fp32_kept": 16.0,
    # Lightning Fabric hands the model's output over in fp32 (litgpt): logits, log-probabilities, and one gradient ...
    "fabric": 12.0,
    # ... or, by chunks of the sequence, the first two of all chunks; a chunk's gradients come on top.
    "fabric_chunked": 8.0,
    # Code that never casts to fp32 (GPT-BigCode, Qwen 1): logits, shifted copy and log-softmax, all bf16 ...
    "no_upcast": 6.0,
    # ... with a fused cross-entropy, the first two ...
    "no_upcast_fused": 4.0,
    # ... or with targets that need no shift, the logits returned and held: these, log-softmax, and two gradients.
    "no_upcast_kept": 8.0,
    # A fused cross-entropy (Unsloth, Apex) writes the gradient over the fp32 copy: logits 2, fp32 4, shifted 4.
    "fused": 10.0,
    # ... and under transformers <= 4.45 the bf16 logits are gone: fp32 4, shifted copy 4.
    "fused_4_45": 8.0,
    # Cross-entropy by chunks of the sequence over bf16 logits: all chunks' logits and log-probabilities.
    "chunked": 4.0,
    # Liger, cut cross-entropy: logits and loss in one kernel, a small chunk at a time.
    "linear": 0.0,
}
#: ... where the model computes in fp32, and no loss code makes a copy to cast: log-probabilities and two gradients, and
#: the logits themselves where the loop, or the loss code by its shifted copy, holds them.
_FP32_LOGITS = {"hf": 12.0, "hf_kept": 16.0, "hf_4_48": 12.0, "fp32_kept": 16.0, "no_upcast": 16.0, "chunked": 8.0}
#: ... under autocast where the loss code itself stays in bf16: cross-entropy runs in fp32 on a copy.
_AUTOCAST_LOGITS = {"no_upcast": 12.0, "no_upcast_fused": 8.0}


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
    f = model.ffn / run.tensor_parallel * model.experts_per_token
    trains = run.method == "full"
    split = run.tensor_parallel if run.sequence_parallel else 1
    saved = {
        "norms": _norms(model, run) / split,
        "attention": _attention(model, run),
        "MLP": _mlp(model, run) * f,
    }
    if trains:
        # The linear layers' inputs, for their weights' gradients; attention's output and the product are above.
        saved["inputs of linears"] = _inputs(model, run) * c * h / split
    if model.experts > 1:
        # Each expert's output waits for its routing weight's gradient, and where experts train, its input too.
        saved["routing"] = (2 if trains else 1) * c * h * model.experts_per_token + 4 * model.experts
    if model.adapted(run):
        saved["adapters"] = sum(_adapters(model, run).values())
    if run.quantized_inputs != "none" and run.method == "qlora":
        saved["inputs of quantized linears"] = quantized_inputs(model, run)
    if run.stack == "litgpt":
        saved["fused qkv"] = _litgpt_qkv(model, run)
    if model.dropout:
        saved["dropout masks"] = 2 * h / split
    # Experts that take turns have gradients one after the other; the share of tokens of each is even at best.
    turns = model.experts if run.experts == "looped" else 1
    gradients = (3 if model.gated or model.gelu_new else 2) * c * f / turns
    moving = c * h + gradients - (c * f / turns if trains else 0)
    return Block(saved, moving)


def _inputs(model: Model, run: Run) -> int:
    """How many copies of a norm's output a block keeps for its linears: one each, shared by all that read it."""
    if stream_bytes(run) == compute_bytes(run):
        return 1 if model.shared_norm else 2
    # An fp32 output is cast anew for each of them.
    return (1 if model.fused_qkv else 3) + (2 if model.gated else 1)


def quantized_inputs(model: Model, run: Run) -> float:
    """What older bitsandbytes keeps: each quantized linear's input; q, k and v share theirs, as gate and up do."""
    norms = (1 if model.shared_norm else 2) * model.hidden
    f = model.ffn / run.tensor_parallel * model.experts_per_token
    return 2 * (norms + model.q / run.tensor_parallel + f)


def _norms(model: Model, run: Run) -> float:
    h, trains = model.hidden, run.method == "full"
    # Norms that read the same tensor keep it once.
    count = 1 if model.parallel and model.norm == "layer" else model.norms_per_layer
    if run.kernels != "eager" or model.norm == "layer":
        # One kernel: it keeps its input and one or two numbers per token.
        return count * (stream_bytes(run) * h + (4 if model.norm == "rms" else 8))
    # Written out, an RMSNorm keeps its input in fp32 and, where its weight trains, the normed value too.
    # (what it returns is fp32 as the stream is, and each linear's bf16 copy of that is counted with the linears)
    scaled = (4 if model.fp32_scale else stream_bytes(run)) if trains else 0
    heads = (4 + scaled) * (model.q + model.k) / run.tensor_parallel if model.head_norms else 0.0
    return count * ((4 + scaled) * h + 4) + heads


def _mlp(model: Model, run: Run) -> float:
    """Bytes per element of the MLP's width: gate, activation and up; and the product, where it is an input."""
    c = compute_bytes(run)
    product = c if run.method == "full" or ("down" in model.adapted(run) and not _copies_inputs(run)) else 0
    if not model.gated:
        # GELU in one kernel keeps its input; written out in Python also the tanh, one more than it, half the input.
        return (4 if model.gelu_new else 1) * c + product
    # Liger's and Unsloth's SwiGLU keeps gate and up, and computes the activation anew.
    return (2 if run.kernels == "fused" else 3) * c + product


def _attention(model: Model, run: Run) -> float:
    c, t = compute_bytes(run), run.tensor_parallel
    q, k, heads = model.q / t, max(model.k / t, model.head_dim), model.heads / t
    grouped = k < q
    fused = c * (q + k) if model.fused_qkv else 0.0  # the values are a view that keeps all of the fused projection
    scores = heads * run.seq_len
    if run.attention == "eager" or model.soft_capped:
        # Softmax in fp32, its copy in the compute dtype; grouped keys and values are copied for each query head.
        probabilities = 4 + c if c == 2 and model.fp32_softmax else c
        if model.soft_capped:
            probabilities += c  # tanh keeps what it returns
        if model.dropout:
            probabilities += c + 1  # the dropped-out copy and its mask
        return 4 * c * q + fused + probabilities * scores
    if c == 4 and grouped and run.attention == "sdpa":
        # No fused kernel takes fp32 with grouped heads: scaled queries and keys, softmax, all written out.
        return 4 * c * q + fused + c * scores
    kept = q if run.repeat_kv else k
    # Queries, keys, values, the output, and one fp32 log-sum-exp per head.
    return c * q + 2 * c * kept + c * q + 4 * heads + fused


def _litgpt_qkv(model: Model, run: Run) -> float:
    """litgpt projects q, k and v at once: the values are a view that keeps all of it, unless they are expanded to one
    per query head. LoRA on some of the three scatters its output with index_copy, which keeps it. Attention's output
    is copied for a projection that trains."""
    c, q, k = compute_bytes(run), model.q, model.k
    expanded = model.kv_heads < model.heads
    kept = 2 * c * (q - k) if expanded and not run.repeat_kv else c * (q + k)
    targets = set(model.adapted(run)) & {"q", "k", "v"}
    if targets and targets != {"q", "k", "v"}:
        kept += c * sum(q if target == "q" else k for target in targets)
    return kept + (c * q if run.method == "full" else 0)


def _adapters(model: Model, run: Run) -> dict[str, float]:
    """What each adapter keeps. A shared input costs once, a cast or dropped-out one for each adapter."""
    c = compute_bytes(run)
    adapter = 4 if run.adapter_dtype == "fp32" else 2
    cast = _casts_inputs(run)
    kept = c if run.autocast else max(adapter, c) if cast else c
    by_target: dict[str, float] = {}
    seen: set[str] = set()
    for target in model.adapted(run):
        if target == "head":
            continue
        width = {"o": model.q, "down": model.ffn}.get(target, model.hidden)
        source = {"gate": "mlp", "up": "mlp", "gate_up": "mlp", "o": "o", "down": "down"}.get(target, "attention")
        if source == "mlp" and model.shared_norm:
            source = "attention"
        experts = model.experts_per_token if source in ("mlp", "down") else 1
        size = kept * run.lora_rank
        if run.stack == "litgpt" and source == "attention" and source in seen:
            pass  # q, k and v are one layer, with one dropout
        elif run.lora_dropout:
            size += (kept + 1) * width * experts  # the dropped-out copy, and a mask of one byte per element
        elif cast:
            size += kept * width * experts
        elif source not in seen and source in ("attention", "mlp"):
            size += c * width * experts  # the norm's output, which frozen weights alone would not keep
        seen.add(source)
        by_target[target] = size
    return by_target


def recomputed_peak(model: Model, run: Run) -> float:
    """Bytes per token at the worst moment of a checkpointed block's second forward, where adapters make it.

    An adapter's output, that times its scale, and the frozen layer's output (of quantized layers a copy too) meet.
    """
    adapters = _adapters(model, run)
    if not adapters or run.stack == "litgpt":
        return 0.0
    c = compute_bytes(run)
    adapter = 4 if run.adapter_dtype == "fp32" and not run.autocast else 2
    passing = (2 if run.method == "qlora" else 1) * c + 2 * max(adapter, c)
    parts = block(model, run).saved
    norm, f = parts["norms"] / 2, model.ffn * model.experts_per_token
    mlp_out = parts["MLP"] / (3 if model.gated else 1)
    alive, peak = c * model.hidden, 0.0  # the gradient that waits for the block

    def layer(target: str, out: float) -> None:
        nonlocal alive, peak
        if target in adapters:
            alive += adapters[target]
            # In the MLP the frozen layer's output and the activation's are there together.
            more = c if run.method == "lora" and target in ("gate", "up", "gate_up") else 0
            peak = max(peak, alive + (passing + more) * out)

    alive += norm
    for target, out in (("q", model.q), ("k", model.k), ("v", model.k), ("qkv", model.q + 2 * model.k)):
        layer(target, out)
    alive += parts["attention"]
    layer("o", model.hidden)
    alive += norm
    layer("gate", f)
    layer("gate_up", 2 * f)
    if model.gated:
        alive += 2 * mlp_out
    layer("up", f)
    alive += mlp_out
    layer("down", model.hidden)
    return peak


def norm_backward(model: Model, run: Run) -> float:
    """Bytes per token while backward goes through the norm before the MLP, which is done: a written-out norm's
    gradients are in fp32, four of them at once. Only where the MLP is narrower than the model is this the worst."""
    if model.norm != "rms" or run.kernels != "eager":
        return 0.0
    saved = block(model, run).saved
    adapters = sum(size for target, size in _adapters(model, run).items() if target in ("q", "k", "v", "qkv", "o"))
    return saved["norms"] + saved["attention"] + adapters + (2 * compute_bytes(run) + 4 * 4) * model.hidden


def _casts_inputs(run: Run) -> bool:
    """Whether adapters cast their inputs. peft's quantized layers leave that to autocast."""
    adapter = 4 if run.adapter_dtype == "fp32" else 2
    return adapter != compute_bytes(run) and not (run.autocast and run.method == "qlora")


def _copies_inputs(run: Run) -> bool:
    """Whether adapters keep copies of their inputs, and not the inputs."""
    return run.lora_dropout > 0 or _casts_inputs(run)


def stream_bytes(run: Run) -> int:
    """Bytes per element of the residual stream: fp32 where the embedding is, since autocast does not touch it."""
    if run.kbit_fp32 or run.fp32_stream or (run.precision == "autocast" and not run.shards_weights):
        return 4
    return compute_bytes(run)


def first_block_saving(model: Model, run: Run) -> float:
    """Bytes per token that the first block need not keep: with adapters alone, and no checkpointing, nothing before its
    adapters wants a gradient, which is its norm, and where the MLP stands beside attention, all of that."""
    if not model.adapted(run) or run.checkpointing != "none":
        return 0.0
    kept = block(model, run).saved
    beside = model.parallel and not {"gate", "up", "gate_up", "down"} & set(model.adapted(run))
    return kept["norms"] / model.norms_per_layer + (kept["MLP"] if beside else 0.0)


def head_bytes(model: Model, run: Run) -> float:
    """What one token costs between the last block and the loss: the final norm, the logits, the loss."""
    c, h = compute_bytes(run), model.hidden
    final = 2 * c * h
    if run.kernels == "eager" and model.norm == "rms":
        final = 4 * h + c * h + (c * h if run.method == "full" else 0)
    if run.method == "qlora" and run.quantize_head and run.quantized_inputs != "none":
        final += c * h
    capped = 2 * c if model.soft_capped else 0  # tanh's result, and the product with the cap
    return final + (logit_bytes(run) + capped) * model.vocab / run.tensor_parallel


def held_logits(run: Run) -> float:
    """Bytes per logit that the training loop holds all through backward, in a variable of its own."""
    if run.loss in ("fabric", "fabric_chunked", "fp32_kept", "hf_4_45_kept"):
        return 4.0
    return float(compute_bytes(run)) if run.loss in ("hf_kept", "no_upcast_kept") else 0.0


def logit_bytes(run: Run) -> float:
    """Bytes per logit at the worst moment of the loss."""
    if compute_bytes(run) == 4 and run.loss in _FP32_LOGITS:
        return _FP32_LOGITS[run.loss]
    if run.loss == "chunked" and run.kernels == "fused":
        return 2.25  # compiled: all chunks' bf16 logits, of which one chunk's gradient is made at a time
    if run.autocast and run.loss in _AUTOCAST_LOGITS:
        return _AUTOCAST_LOGITS[run.loss]
    return LOGITS[run.loss]
