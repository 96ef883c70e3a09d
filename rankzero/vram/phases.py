"""A training step as moments, each with everything that is alive in it. The peak is the largest moment.

A sum over parts that never meet would be too much, so no number here is one: gradients and logits, for example,
are alive at different moments.
"""

from __future__ import annotations

from rankzero.vram import activations
from rankzero.vram.model import Model
from rankzero.vram.run import Run
from rankzero.vram.states import DEEPSPEED_BUCKET, States, counts, linear_bytes, states, trained_bytes

Parts = dict[str, float]

LOSS = "forward end"
BACKWARD = "backward, last block"
BACKWARD_END = "backward, first block"
STEP = "optimizer step"


def moments(model: Model, run: Run) -> dict[str, Parts]:
    """The four moments at which a step can peak, each as parts in bytes on one GPU."""
    kept = states(model, run)
    block = activations.block(model, run)
    tokens = run.tokens
    stored = _stored_blocks(model, run, block) * tokens
    peaks = (activations.recomputed_peak(model, run), activations.norm_backward(model, run))
    at_work = max(block.saved_bytes + block.moving, *peaks) * tokens
    # Without checkpointing, the block at work is one of those that are stored.
    extra = at_work if run.checkpointing != "none" else block.moving * tokens
    before = kept.gradients if run.accumulation > 1 else 0.0
    head = _head_gradient(model, run)
    hidden = activations.compute_bytes(run) * model.hidden * tokens
    always = {"weights": kept.weights, "optimizer states": kept.optimizer}
    held = activations.held_logits(run) * model.vocab / run.tensor_parallel * tokens
    return {
        LOSS: {
            **always,
            # Where one kernel makes logits and loss, it makes the LM head's gradient too.
            "gradients": max(before, head if run.loss == "linear" else 0.0),
            "activations": stored,
            "logits and loss": activations.head_bytes(model, run) * tokens + _head_at_work(model, run),
            "temporaries": _graph_before(model, run) * tokens,
            "copies of weights": kept.weight_copies,
            **_sharding(model, run, layers=1),
        },
        BACKWARD: {
            **always,
            "gradients": max(before, head),
            "activations": stored + extra,
            "logits and loss": held,
            "copies of weights": _copies_at_work(model, run, kept),
            "temporaries": _dequantized(model, run),
            **_sharding(model, run, layers=2),
        },
        BACKWARD_END: {
            **always,
            "gradients": max(before, kept.gradients - _still_to_come(model, run)),
            "activations": at_work + hidden + _left_behind(model, run) * tokens,
            "logits and loss": held,
            "copies of weights": _copies_at_work(model, run, kept),
            "temporaries": max(_dequantized(model, run), _second_embedding(model, run)),
            **_sharding(model, run, layers=2, last=True),
        },
        STEP: {
            **always,
            "gradients": kept.gradients,
            "temporaries": kept.step_temporary,
            **_at_step(model, run),
        },
    }


def _stored_blocks(model: Model, run: Run, block: activations.Block) -> float:
    """Bytes per token that all blocks together keep from forward to backward."""
    inputs = activations.stream_bytes(run) * model.hidden
    if run.sequence_parallel:
        inputs /= run.tensor_parallel
    if run.checkpointing == "full":
        cache = activations.stream_bytes(run) * (model.q + 2 * model.k) if run.kv_cache else 0.0
        return model.layers * (inputs + cache)
    if run.checkpointing == "offload":
        return 2.0 * inputs  # one on its way out, one on its way in
    if run.checkpointing == "selective":
        return model.layers * (inputs + _selective(model, run))
    return model.layers * block.saved_bytes - activations.first_block_saving(model, run)


def _selective(model: Model, run: Run) -> float:
    """torchtitan's rule: of a block's matrix products every second output is kept, and attention's."""
    c, t = activations.compute_bytes(run), run.tensor_parallel
    q, k, f, h = model.q / t, model.k / t, model.ffn / t, model.hidden
    products = [q, k, k, h, f, f, h] if model.gated else [q, k, k, h, f, h]
    return c * (sum(products[1::2]) + q) + 4 * model.heads / t


def _head_at_work(model: Model, run: Run) -> float:
    """What a loss that goes by chunks holds besides what grows with the tokens."""
    if run.loss == "chunked" and run.kernels == "fused" and run.method == "full":
        # Each of 8 chunks makes a whole gradient of the LM head, which is added to the one so far; one chunk's logits
        # are gone by then, and no chunk has a gradient of its own left.
        gained = 2 * trained_bytes(run) * counts(model, run).embedding
        return max(0.0, gained - 0.5 * model.vocab / run.tensor_parallel * run.tokens)
    if run.loss != "fabric_chunked":
        return 0.0
    # The two fp32 gradients of a chunk of 128 tokens per sequence.
    chunk = 8.0 * model.vocab * min(128, run.seq_len) * run.micro_batch
    if not (run.quantize_head and run.method == "qlora"):
        return chunk
    # Or the LM head's matrix, dequantized in fp16 and cast to bf16, beside bf16 logits and the fp32 ones before them.
    return max(chunk, model.vocab * (4.0 * model.hidden - 2.0 * run.tokens))


def _graph_before(model: Model, run: Run) -> float:
    """Bytes per token of the step before that its graph still holds at the end of forward: see quantized_inputs."""
    if run.quantized_inputs != "two_steps" or run.method != "qlora":
        return 0.0
    return model.layers * activations.quantized_inputs(model, run)


def _left_behind(model: Model, run: Run) -> float:
    """Bytes per token that FSDP 1 keeps of the blocks whose backward is done.

    Where a unit's weights are frozen, its backward is noticed through hooks on its inputs, which live until backward
    ends. Where a reentrant checkpoint is called around the unit, these are the checkpoint's own copies of the block's
    input, with the gradient that they got. Seen in the rows of fms-acceleration as 2h more per layer than without
    FSDP, for 32 and for 80 layers alike, and never where all weights train. FSDP 2 has no such hooks.
    """
    if run.sharding != "fsdp1" or run.prefetch or run.method == "full" or run.checkpointing != "full":
        return 0.0
    return 2 * activations.compute_bytes(run) * model.hidden * max(0, model.layers - 1)


def _head_gradient(model: Model, run: Run) -> float:
    """The LM head's gradient, the first one that there is."""
    if run.method != "full" or run.offload == "parameters":
        return 0.0
    head = counts(model, run).embedding * trained_bytes(run)
    return head / run.shards if run.shards_gradients else head


def _still_to_come(model: Model, run: Run) -> float:
    """Gradients that are not there yet when backward reaches the first block's MLP: its own, and the embedding's."""
    if run.method != "full" or run.offload == "parameters" or run.optimizer_in_backward:
        return 0.0
    parts = counts(model, run)
    missing = parts.linear / model.layers + (0 if model.tied else parts.embedding)
    return missing * trained_bytes(run) / (run.shards if run.shards_gradients else 1)


def _second_embedding(model: Model, run: Run) -> float:
    """A tied embedding's gradient by the look-up, before it is added to the one by the LM head.

    It comes when the first block's activations are gone, so it counts for what it is more than they.
    """
    if run.method != "full" or not model.tied or run.offload == "parameters":
        return 0.0
    block = activations.block(model, run)
    at_work = (block.saved_bytes + block.moving) * run.tokens - _still_to_come(model, run)
    return max(0.0, counts(model, run).embedding * trained_bytes(run) - at_work)


def _copies_at_work(model: Model, run: Run, kept: States) -> float:
    """Autocast's bf16 weights in backward: all of them, or with checkpointing the recomputed block's."""
    return kept.weight_copies / model.layers if run.checkpointing == "full" else kept.weight_copies


def _dequantized(model: Model, run: Run) -> float:
    """The largest matrix of a block, dequantized to be multiplied with."""
    if run.method != "qlora":
        return 0.0
    return 2.0 * max(i * o for i, o in model.projections.values()) / run.tensor_parallel


def _sharding(model: Model, run: Run, layers: int, last: bool = False) -> Parts:
    """Gathered weights and buffers of communication while the model runs; ``last``: at the end of backward."""
    parts = counts(model, run)
    per_layer = parts.linear / model.layers
    if run.sharding in ("fsdp", "fsdp1", "hybrid"):
        compute = activations.compute_bytes(run)
        root = (parts.embedding + parts.lm_head) * compute
        gathered = per_layer * (linear_bytes(run) if run.method == "qlora" else compute)
        reduced = per_layer * compute if run.method == "full" and layers > 1 else 0.0
        if run.stack == "litgpt" and run.method != "full" and last:
            # A unit there is a block with its adapters, whose flat parameter trains as a whole: the frozen weights get
            # gradients too, and Fabric's accumulation keeps them unsharded.
            reduced, layers = parts.linear * compute, 3
        elif not run.prefetch:
            layers = 1
        return {"gathered weights": root + layers * gathered, "communication buffers": reduced}
    if run.sharding == "zero3":
        # DeepSpeed gathers ahead up to its limit of live parameters, one billion by default.
        live = min(1e9, parts.base)
        per_element = linear_bytes(run) if run.method == "qlora" else 2
        return {"gathered weights": live * per_element, "communication buffers": 2.0 * min(5e8, _trained(model, run))}
    if run.sharding in ("zero1", "zero2"):
        bucket = min(DEEPSPEED_BUCKET, _trained(model, run)) * trained_bytes(run)
        return {"communication buffers": bucket if layers > 1 else 0.0}
    if run.sharding == "ddp":
        return {"communication buffers": _trained(model, run) * trained_bytes(run)}
    if run.sequence_parallel:
        hidden = activations.compute_bytes(run) * model.hidden * run.tokens
        return {"communication buffers": hidden}
    return {}


def _at_step(model: Model, run: Run) -> Parts:
    if run.sharding in ("zero1", "zero2"):
        bucket = min(DEEPSPEED_BUCKET, _trained(model, run)) * trained_bytes(run)
        return {"communication buffers": bucket}
    if run.sharding == "ddp":
        return {"communication buffers": _trained(model, run) * trained_bytes(run)}
    return {}


def _trained(model: Model, run: Run) -> float:
    parts = counts(model, run)
    return parts.base if run.method == "full" else parts.adapters
