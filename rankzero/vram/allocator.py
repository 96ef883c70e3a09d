"""From the bytes of live tensors to what the allocator reserves, and to what ``nvidia-smi`` shows."""

from __future__ import annotations

from rankzero.vram.activations import compute_bytes
from rankzero.vram.model import Model
from rankzero.vram.phases import LOSS, STEP, Parts
from rankzero.vram.run import Run

GIB = 2**30
#: NCCL's channels and buffers for each further communicator's first use: 0.5–1.5 GiB seen. The middle of it.
NCCL = int(1.0 * GIB)
#: cuBLAS's workspace and the rounding up to segments of 2 and 20 MiB.
SEGMENTS = int(0.25 * GIB)
#: fp32 logits tensors that are lost to fragmentation after the loss: pieces of two and of four bytes per logit
#: replace one another. nvidia-smi less allocated in fms-acceleration's runs on one GPU: 1.2 GiB + 1.33 of them (LoRA).
LOST_LOGITS = 1.33
#: ... and where lengths vary, what losses of other lengths have left: reserved less the formula's allocated in
#: ms-swift's runs of 2,048 tokens, one and a half to two and a half times the longest batch's own.
OTHER_LENGTHS = 2.0
#: Share of the activations that is lost between them: the same runs without logits (Liger), 4 to 128 thousand tokens.
HOLES = 0.10


def reserved_overhead(model: Model, run: Run, moments: dict[str, Parts]) -> float:
    """Bytes that the caching allocator holds at the peak beyond the live tensors.

    Three things make it: blocks that the loss lets go and that fit nothing that comes later; the holes between a
    block's activations, which are made and freed anew for each block; and, under FSDP, gathered weights whose
    memory comes back late, because another stream used it.
    """
    overhead = float(SEGMENTS)
    if run.variable_length:
        # Buffers that the losses of shorter batches let go fit none of a longer one.
        overhead += OTHER_LENGTHS * moments[LOSS].get("logits and loss", 0.0)
    elif run.loss not in ("linear", "chunked"):
        copy = 4 * model.vocab / run.tensor_parallel * run.tokens
        overhead += LOST_LOGITS * (copy if compute_bytes(run) == 2 else copy / 2)
    overhead += HOLES * max(parts.get("activations", 0.0) for parts in moments.values())
    overhead += moments[LOSS].get("gathered weights", 0.0)
    if run.shards_weights:
        # Flat shards are few and large: the optimizer step's copies of them find no room where activations were.
        forward = moments[LOSS].get("activations", 0.0) + moments[LOSS].get("logits and loss", 0.0)
        overhead += min(forward, moments[STEP].get("temporaries", 0.0))
    return overhead


def traced_overhead(activations: float) -> float:
    """The same for a step of which only the live tensors are known: the segments, and the holes in the activations."""
    return SEGMENTS + HOLES * activations


def context_bytes(run: Run) -> int:
    """What the process takes on the device besides the allocator."""
    return run.context_mib * 2**20 + (NCCL if run.gpus > 1 else 0)
