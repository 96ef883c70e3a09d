"""From the bytes of live tensors to what the allocator reserves, and to what ``nvidia-smi`` shows."""

from __future__ import annotations

from rankzero.vram.activations import compute_bytes
from rankzero.vram.model import Model
from rankzero.vram.phases import LOSS, Parts
from rankzero.vram.run import Run

GIB = 2**30
#: What CUDA and its libraries take before the first tensor: 0.47–0.92 GiB on an A100 with lazy loading (torch 2.1),
#: 0.14 GiB on a T4 (torch 2.10). The middle of it.
CONTEXT = int(0.5 * GIB)
#: NCCL's channels and buffers for each further communicator's first use: 0.5–1.5 GiB seen. The middle of it.
NCCL = int(1.0 * GIB)
#: cuBLAS's workspace and the rounding up to segments of 2 and 20 MiB.
SEGMENTS = int(0.25 * GIB)


def reserved_overhead(model: Model, run: Run, moments: dict[str, Parts]) -> float:
    """Bytes that the caching allocator holds at the peak beyond the live tensors.

    Two things make it: blocks that were let go but fit nothing that comes later (the loss frees 2- and 4-byte
    copies of the logits, so about one fp32 logits tensor is lost), and under FSDP gathered weights whose memory
    comes back late, because another stream used it.
    """
    overhead = float(SEGMENTS)
    if run.loss not in ("linear", "chunked"):
        copies = 1.0 if compute_bytes(run) == 2 else 0.5
        overhead += copies * 4 * model.vocab / run.tensor_parallel * run.tokens
    overhead += 2 * moments[LOSS].get("gathered weights", 0.0)
    return overhead


def context_bytes(run: Run) -> int:
    """What the process takes on the device besides the allocator."""
    return CONTEXT + (NCCL if run.gpus > 1 else 0)
