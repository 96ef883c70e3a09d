"""The judgements on Zero3's memory: shards between uses, few whole blocks at once."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from autograder.exercise import Case
from rankzero.observe.observation import Observation


def sizes_of(spec: Sequence[tuple], ranks: int) -> tuple[int, int, int]:
    """Bytes of one of the equal blocks, of all of them, and of a rank's share."""
    kind, width = spec[0]
    numel = (width * width + width) * (2 if kind == "checkpointed" else 1)
    return 4 * numel, 4 * numel * len(spec), 4 * -(-numel // ranks) * len(spec)


def most_kept(spec: Sequence[tuple], ranks: int) -> int:
    """The most bytes between uses: weights, gradients (where `zero_grad` leaves zeros), states, a copy of a shard."""
    return round(1.05 * 5 * sizes_of(spec, ranks)[2]) + 4096


def kept(case: Case, seen: Observation) -> str | None:
    """A sentence if a rank holds more than its shards between uses."""
    _, whole, shards = sizes_of(case.inputs[0]["spec"], case.ranks)
    for rank, result in enumerate(seen.results):
        if result["left_in_parameters"] > 0.5 * whole:
            return (
                f"After backward the blocks of rank {rank} still hold {_kib(result['left_in_parameters'])} of "
                "weights: free each block once its gradients are reduced."
            )
        if result["after_backward"] > case.inputs[0]["most"]:
            cause = _kept_cause(result["after_backward"] - 4 * shards, whole)
            return (
                f"After backward rank {rank} holds {_kib(result['after_backward'])}; its shards of weights, gradients "
                f"and AdamW's states are {_kib(4 * shards)}. {cause}"
            )
        if result["kept"] > case.inputs[0]["most"]:
            return (
                f"After step and zero_grad rank {rank} holds {_kib(result['kept'])}; its shards of weights and "
                f"of AdamW's states are {_kib(3 * shards)}. {_kept_cause(result['kept'] - 3 * shards, whole)}"
            )
    return None


def _kept_cause(over: int, whole: int) -> str:
    if over > 1.2 * whole:
        return "AdamW's states are whole: make them for the shards only."
    return "Whole weights or whole gradients stay alive between uses: who still refers to them?"


def peak(case: Case, seen: Observation) -> str | None:
    """A sentence if more than 4 blocks are whole at once."""
    block, _, _ = sizes_of(case.inputs[0]["spec"], case.ranks)
    count = len(case.inputs[0]["spec"])
    for rank, result in enumerate(seen.results):
        # Shards, gradient shards and states are what is alive once backward is over.
        base = result["after_backward"]
        for phase in ("forward", "backward"):
            over = (result[f"{phase}_peak"] - base) / block
            if over > 4.6:  # 4 blocks, and activations
                return (
                    f"In {phase} rank {rank} holds up to {over:.1f} blocks above its shards; up to 4 of {count} may be "
                    f"whole at once. {_peak_cause(result, block, count, phase)}"
                )
        stay = (result["after_forward"] - result["before"]) / block
        if stay > 3.6:
            cause = _peak_cause(result, block, count, "forward")
            return f"After forward rank {rank} holds {stay:.1f} blocks more than before it. {cause}"
    return None


def _peak_cause(result: dict[str, Any], block: int, count: int, phase: str) -> str:
    if result["first_block"] is not None and result["first_block"] - result["before"] > 0.7 * count * block:
        return "All weights are gathered before the first block runs: gather each block when its turn comes."
    stays = (result["after_forward"] - result["before"]) / block
    if phase == "backward" and stays < 3.6:
        return (
            "Blocks gathered in backward are not freed, or whole gradients of all blocks pile up: reduce and free them "
            "one by one."
        )
    if result["in_parameters"] > 0.5 * count * block:
        return "The weights of blocks that have run are still whole: free each block after its forward."
    return (
        "The blocks' parameters are freed, but something still refers to the whole weights: autograd saves what "
        "backward needs. Free the memory itself (`untyped_storage().resize_(0)`), or let autograd save a note "
        "(`saved_tensors_hooks`), or compute again."
    )


def _kib(n_bytes: int) -> str:
    return f"{n_bytes / 1024:,.0f} KiB"
