"""What fits a card: the largest micro-batch or sequence, and the cheapest changes that make a misfit fit."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import combinations

from rankzero.gpus import Gpu
from rankzero.vram.estimator import Estimate, estimate
from rankzero.vram.model import Model
from rankzero.vram.run import Run


def largest(model: Model, run: Run, gpu: Gpu, vary: str = "micro_batch") -> int:
    """The largest ``micro_batch`` or ``seq_len`` with which the run fits the card; 0 if not even 1 does."""
    most = {"micro_batch": 65_536, "seq_len": 16_777_216}[vary]

    def fits(value: int) -> bool:
        return bool(estimate(model, run.but(**{vary: value * step}), gpu).fits)

    # A sequence that is cut over tensor-parallel ranks has to divide.
    step = run.tensor_parallel if vary == "seq_len" and run.sequence_parallel else 1
    low, high = 0, 1
    while high * step <= most and fits(high):
        low, high = high, 2 * high
    high = min(high, most // step + 1)
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (middle, high) if fits(middle) else (low, middle)
    return low * step


@dataclass(frozen=True)
class Change:
    """A way to need less memory, and what it costs.

    Attributes:
        words: what to do.
        fields: the run's fields that change.
        slowdown: step time over the step time before, by counting operations; a rough figure to order by.
        why: where the slowdown comes from.
        other_training: whether the run then trains something else (adapters instead of all weights).
    """

    words: str
    fields: dict
    slowdown: float
    why: str
    other_training: bool = False


#: Forward, backward for inputs and backward for weights are a third of a training step's operations each.
_THIRD = 1 / 3


def changes(model: Model, run: Run) -> Iterator[Change]:
    """The changes that the run leaves open, cheapest kinds first."""
    if run.loss not in ("linear", "chunked"):
        yield Change("fuse the loss into the LM head (Liger, cut cross-entropy)", {"loss": "linear"}, 1.0, "no logits")
    if run.attention == "eager":
        yield Change("use SDPA or flash attention", {"attention": "sdpa"}, 1.0, "faster as well")
    if run.method == "full" and run.optimizer in ("adamw", "adamw_fused"):
        if not run.optimizer_in_backward and run.accumulation == 1 and run.sharding in ("none", "ddp"):
            yield Change(
                "step the optimizer inside backward", {"optimizer_in_backward": True}, 1.0, "no gradients kept"
            )
        eight = {"optimizer": "adamw8bit"} | ({"precision": "bf16_pure"} if run.precision == "bf16_mixed" else {})
        yield Change("use 8-bit AdamW", eight, 1.02, "states are quantized anew each step")
    if run.micro_batch > 1:
        halved = {"micro_batch": max(1, run.micro_batch // 2), "accumulation": 2 * run.accumulation}
        if not run.optimizer_in_backward:
            words = f"micro-batch {halved['micro_batch']} with {halved['accumulation']} accumulation steps"
            yield Change(words, halved, 1.05, "smaller matrices use the card less well")
    if run.checkpointing == "none":
        yield Change("selective checkpointing", {"checkpointing": "selective"}, 1.1, "cheap parts are computed twice")
    if run.checkpointing in ("none", "selective"):
        yield Change("checkpoint every block", {"checkpointing": "full"}, 1 + _THIRD, "one more forward")
    if run.method == "full":
        yield Change(
            "train LoRA adapters only",
            {"method": "lora", "precision": "bf16_pure", "optimizer": "adamw", "optimizer_in_backward": False},
            1 - _THIRD,
            "no gradients for the weights",
            other_training=True,
        )
    if run.method in ("full", "lora"):
        yield Change(
            "QLoRA: the weights in NF4",
            {"method": "qlora", "precision": "bf16_pure", "optimizer": "adamw", "optimizer_in_backward": False},
            (1 - _THIRD) * 1.3 if run.method == "full" else 1.3,
            "the weights are dequantized in each pass",
            other_training=run.method == "full",
        )
    if run.sharding in ("none", "ddp") and run.tensor_parallel == 1 and not run.optimizer_in_backward:
        for gpus in sorted({2, 4, 8, max(2, run.gpus)}):
            if gpus >= run.gpus:
                words = f"shard over {gpus} GPUs with FSDP"
                yield Change(words, {"gpus": gpus, "sharding": "fsdp"}, 1.1 + gpus / 100, "weights travel each step")
    if run.offload == "none" and run.optimizer in ("adamw", "adamw_fused") and run.method == "full":
        yield Change("keep the optimizer's states on the host", {"offload": "optimizer"}, 1.6, "the host does the step")


def remedies(model: Model, run: Run, gpu: Gpu, most: int = 4) -> list[tuple[tuple[Change, ...], Estimate]]:
    """The cheapest sets of up to three changes that make the run fit, by what they cost in speed.

    A set is left out if a part of it fits already. Of sets that train the same as before, and of those that train
    something else, there are up to ``most`` each.
    """
    found: list[tuple[tuple[Change, ...], Estimate]] = []
    offered = list(changes(model, run))
    for size in (1, 2, 3):
        for chosen in combinations(offered, size):
            if _clash(chosen) or any(_words(got) <= _words(chosen) for got, _ in found):
                continue
            merged = {name: value for change in chosen for name, value in change.fields.items()}
            try:
                result = estimate(model, run.but(**merged), gpu)
            except ValueError:
                continue  # these do not go together
            if result.fits:
                found.append((chosen, result))
    found.sort(key=lambda item: slowdown(item[0]))
    same = [item for item in found if not trains_other(item[0])][:most]
    other = [item for item in found if trains_other(item[0])][:most]
    return sorted(same + other, key=lambda item: slowdown(item[0]))


def trains_other(chosen: tuple[Change, ...]) -> bool:
    """Whether the changes make the run train something else."""
    return any(change.other_training for change in chosen)


def _words(chosen: tuple[Change, ...]) -> set[str]:
    return {change.words for change in chosen}


def slowdown(chosen: tuple[Change, ...]) -> float:
    """What a set of changes costs: the product of its slowdowns."""
    product = 1.0
    for change in chosen:
        product *= change.slowdown
    return product


def _clash(chosen: tuple[Change, ...]) -> bool:
    """Whether two of the changes set the same field to different values, or both change the method."""
    seen: dict[str, object] = {}
    for change in chosen:
        for name, value in change.fields.items():
            if name in seen and seen[name] != value:
                return True
            seen[name] = value
    return False


def sizes(model: Model, run: Run, gpu: Gpu) -> dict[str, int]:
    """The largest micro-batch and the largest sequence that fit, each with the other as it is."""
    return {vary: largest(model, run, gpu, vary) for vary in ("micro_batch", "seq_len")}
