"""What stays from step to step: weights, gradients, optimizer states, and the copies that an optimizer step makes.

Everything here is bytes on one GPU. GiB is 2**30.
"""

from __future__ import annotations

from dataclasses import dataclass

from rankzero.vram.model import Model
from rankzero.vram.run import Run

#: Bytes per NF4 parameter: half a byte, an fp32 scale per block of 64.
NF4_SINGLE = 0.5 + 4 / 64
#: ... with the scales themselves in one byte, and an fp32 scale for each 256 of them.
NF4_DOUBLE = 0.5 + 1 / 64 + 4 / (64 * 256)
#: bitsandbytes' 8-bit states: one byte, an fp32 scale per block of 256.
EIGHT_BIT = 1 + 4 / 256
#: torchao's 4-bit states: half a byte, an fp32 scale per block of 128.
FOUR_BIT = 0.5 + 4 / 128
#: DeepSpeed's default bucket, in elements, for reducing gradients and for gathering updated weights.
DEEPSPEED_BUCKET = 500_000_000
#: DistributedDataParallel's first and later buckets hold all gradients once more (25 MiB each, by default copies).


@dataclass(frozen=True)
class States:
    """Bytes on one GPU that outlive a step, and what the step adds.

    Attributes:
        weights: the GPU's share of the weights, adapters included.
        gradients: its share of all gradients.
        optimizer: its share of the optimizer's states, the fp32 master copy included.
        step_temporary: what the optimizer step holds besides.
        weight_copies: bf16 copies of fp32 weights that autocast keeps from forward to backward.
    """

    weights: float
    gradients: float
    optimizer: float
    step_temporary: float
    weight_copies: float


@dataclass(frozen=True)
class Counts:
    """Parameters on one tensor-parallel rank, before any sharding over replicas."""

    linear: float
    embedding: float
    lm_head: float
    other: float
    adapters: float

    @property
    def base(self) -> float:
        return self.linear + self.embedding + self.lm_head + self.other


def counts(model: Model, run: Run) -> Counts:
    """The parameters that one tensor-parallel rank has: matrices are cut, norms are not."""
    t = run.tensor_parallel
    other = max(0, model.parameters - model.linear - model.embedding - model.lm_head)
    adapters = model.adapters(model.adapted(run), run.lora_rank)
    return Counts(model.linear / t, model.embedding / t, model.lm_head / t, other, adapters / t)


def weight_bytes(run: Run) -> int:
    """Bytes of a weight that is not quantized."""
    return 4 if run.precision in ("fp32", "autocast") else 2


def linear_bytes(run: Run) -> float:
    """Bytes of a parameter of a block's matrices."""
    if run.method != "qlora":
        return weight_bytes(run)
    return {"nf4": NF4_DOUBLE, "nf4_single": NF4_SINGLE, "int8": 1.0}[run.quantization]


def state_bytes_per_parameter(run: Run) -> float:
    """Bytes of optimizer state for one trained parameter, on the GPU."""
    weight = trained_bytes(run)
    element = 4 if run.states == "fp32" else weight
    master = 4 if run.precision == "bf16_mixed" and run.method == "full" else 0
    if master:
        element = 4
    return {
        "adamw": 2 * element + master,
        "adamw_fused": 2 * element + master,
        "adamw8bit": 2 * EIGHT_BIT,
        "adamw4bit": 2 * FOUR_BIT,
        "paged_adamw": 0.0,  # in unified memory, which moves to the host when the GPU is short of it
        "paged_adamw8bit": 0.0,
        "sgd": float(master),
        "sgd_momentum": element + master,
        "adafactor": 0.0,  # row and column sums: thousandths of the weights; see the step's temporaries
        "none": 0.0,
    }[run.optimizer]


def trained_bytes(run: Run) -> int:
    """Bytes of a trained weight, and of its gradient."""
    if run.method == "full":
        return weight_bytes(run)
    return 4 if run.adapter_dtype == "fp32" else 2


def states(model: Model, run: Run) -> States:
    """What outlives a step on one GPU, sharded as the run says."""
    parts = counts(model, run)
    rest = 4 if run.kbit_fp32 else weight_bytes(run)
    quantized = parts.linear
    if run.method == "qlora" and run.experts == "grouped" and model.experts > 1:
        quantized = model.attention / run.tensor_parallel  # experts' weights are no linear layers, and stay as they are
    head = linear_bytes(run) if run.quantize_head and run.method == "qlora" else rest
    base = quantized * linear_bytes(run) + (parts.linear - quantized) * weight_bytes(run)
    base += parts.lm_head * head + (parts.embedding + parts.other) * rest
    adapters = parts.adapters * trained_bytes(run)
    trained = parts.base if run.method == "full" else parts.adapters
    weights = base + adapters
    gradients = trained * trained_bytes(run)
    optimizer = trained * state_bytes_per_parameter(run)
    temporary = trained * _step_bytes_per_parameter(run)
    shards = run.shards
    if run.sharding != "none" and run.sharding != "ddp":
        optimizer /= shards
        temporary /= shards
    if run.shards_weights:
        # bitsandbytes' scales are no parameters, and so whole on each GPU; only the packed halves of bytes are cut.
        scales = quantized * (linear_bytes(run) - 0.5) if run.method == "qlora" and run.quantization != "int8" else 0.0
        weights = (weights - scales) / shards + scales
    if run.shards_gradients:
        gradients /= shards
    if run.optimizer_in_backward:
        # A parameter's gradient is used and let go at once: the largest ones that meet are one block's.
        largest = max(model.layer / run.tensor_parallel, parts.embedding) if run.method == "full" else 0
        share = largest / max(trained, 1)
        gradients, temporary = gradients * share, temporary * share
    if run.offload != "none":
        optimizer = temporary = 0.0
    if run.offload == "parameters":
        weights = gradients = 0.0
    copies = 0.0
    if run.precision == "autocast" and not run.shards_weights and run.method != "qlora":
        copies = 2 * (parts.linear + parts.lm_head)
    return States(weights, gradients, optimizer, temporary, copies)


def _step_bytes_per_parameter(run: Run) -> float:
    """What the optimizer step allocates for each trained parameter."""
    master = run.precision == "bf16_mixed" and run.method == "full"
    gradient = 4.0 if master else 0.0  # in fp32, beside the master copy
    if run.optimizer in ("adamw", "paged_adamw"):
        # foreach AdamW takes the square root of all second moments at once.
        return gradient + (4.0 if run.states == "fp32" or master else float(trained_bytes(run)))
    return gradient
