"""The estimate: the peak of a training step on one GPU, with its parts."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

from rankzero.gpus import Gpu, find_gpu
from rankzero.vram.allocator import GIB, context_bytes, reserved_overhead
from rankzero.vram.model import Model, load_model
from rankzero.vram.phases import moments
from rankzero.vram.run import Run


@dataclass(frozen=True)
class Estimate:
    """The memory that one GPU needs for a training run. All figures are bytes.

    Attributes:
        allocated_bytes: live tensors at the peak (``torch.cuda.max_memory_allocated``).
        reserved_bytes: what the allocator holds then (``torch.cuda.max_memory_reserved``).
        device_bytes: what ``nvidia-smi`` shows: reserved, and the CUDA context.
        breakdown: ``device_bytes`` by part; it adds up.
        peak: the moment of the peak.
        phases: the live bytes at each moment that can be the peak.
        gpu: the card that was asked for, if any.
    """

    model: Model
    run: Run
    allocated_bytes: int
    reserved_bytes: int
    device_bytes: int
    breakdown: dict[str, int]
    peak: str
    phases: dict[str, int]
    gpu: Gpu | None = None

    @property
    def fits(self) -> bool | None:
        """Whether the run fits the card; None without a card."""
        return None if self.gpu is None else self.device_bytes <= self.gpu.usable_bytes

    def json(self) -> dict[str, Any]:
        """Plain data, for ``rankzero vram --json``."""
        return {
            "model": self.model.name,
            "parameters": self.model.parameters,
            "allocated_bytes": self.allocated_bytes,
            "reserved_bytes": self.reserved_bytes,
            "device_bytes": self.device_bytes,
            "peak": self.peak,
            "phases": self.phases,
            "breakdown": self.breakdown,
            "gpu": None if self.gpu is None else self.gpu.name,
            "gpu_bytes": None if self.gpu is None else self.gpu.usable_bytes,
            "fits": self.fits,
        }

    def text(self) -> str:
        """The estimate as a table, with its arithmetic."""
        lines = [f"{self.model.name}: {self.model.parameters:,} parameters, {run_words(self.run)}", ""]
        width = max(map(len, self.breakdown))
        lines += [f"  {part:<{width}} {size / GIB:9.2f} GiB" for part, size in self.breakdown.items()]
        lines += [
            f"  {'on the device':<{width}} {self.device_bytes / GIB:9.2f} GiB",
            "",
            f"The peak is at: {self.peak}. Live tensors at each moment, in GiB: "
            + ", ".join(f"{moment} {size / GIB:.2f}" for moment, size in self.phases.items())
            + ".",
        ]
        if self.gpu is not None:
            spare = self.gpu.usable_bytes - self.device_bytes
            words = (
                f"fits, with {spare / GIB:.2f} GiB to spare" if spare >= 0 else f"is {-spare / GIB:.2f} GiB too much"
            )
            lines.append(f"On {self.gpu.name} ({self.gpu.usable_bytes / GIB:.1f} GiB usable) it {words}.")
        return "\n".join(lines)

    def __str__(self) -> str:
        return self.text()

    def _repr_pretty_(self, printer: Any, cycle: bool) -> None:
        printer.text(self.text())


def estimate(model: str | dict[str, Any] | Model | Path, run: Run, gpu: str | Gpu | None = None) -> Estimate:
    """Estimate the memory that each GPU of a training run needs, by formula.

    Args:
        model: a built-in name, a ``config.json`` (path, folder or content), or a Model.
        run: the training run.
        gpu: a card by name, to say whether it fits.

    Raises:
        ValueError: the model or the card is unknown, or the run does not go with the model.
    """
    model = load_model(model)
    check(model, run)
    card = find_gpu(gpu) if isinstance(gpu, str) else gpu
    at = moments(model, run)
    totals = {moment: sum(parts.values()) for moment, parts in at.items()}
    peak = max(totals, key=totals.__getitem__)
    overhead, context = reserved_overhead(model, run, at), context_bytes(run)
    breakdown = {part: round(size) for part, size in at[peak].items() if size >= 1}
    breakdown["allocator"] = round(overhead)
    breakdown["CUDA context"] = context
    allocated = sum(size for part, size in breakdown.items() if part not in ("allocator", "CUDA context"))
    return Estimate(
        model=model,
        run=run,
        allocated_bytes=allocated,
        reserved_bytes=allocated + breakdown["allocator"],
        device_bytes=allocated + breakdown["allocator"] + context,
        breakdown=breakdown,
        peak=peak,
        phases={moment: round(total) for moment, total in totals.items()},
        gpu=card,
    )


def check(model: Model, run: Run) -> None:
    """Raise ValueError where the run does not go with the model; the message names the field."""
    t = run.tensor_parallel
    if model.heads % t:
        raise ValueError(f"tensor_parallel: {t} does not divide the {model.heads} attention heads of {model.name}")
    if model.ffn % t:
        raise ValueError(f"tensor_parallel: {t} does not divide the MLP width {model.ffn} of {model.name}")
    if run.sequence_parallel and run.seq_len % t:
        raise ValueError(f"sequence_parallel: tensor_parallel = {t} does not divide seq_len = {run.seq_len}")
    targets = set(model.adapted(run))
    if run.targets and not targets:
        raise ValueError(f"lora_targets: {model.name} has no layer called {', '.join(run.lora_targets)}")
    if run.experts == "grouped" and model.experts > 1 and targets & {"gate", "up", "down"}:
        raise ValueError(
            f"lora_targets: the experts of {model.name} are grouped weights in transformers 5, and what adapters on "
            "them cost has no formula here; name q_proj, k_proj, v_proj, o_proj, or set experts to 'looped' "
            "(transformers 4)"
        )


def run_words(run: Run) -> str:
    """A run in a few words, such as ``qlora, bf16_pure, adamw, 4 × 2048 tokens, fsdp on 2 GPUs``."""
    words = [run.method, run.precision, run.optimizer, f"{run.micro_batch} × {run.seq_len} tokens per GPU"]
    if run.checkpointing != "none":
        words.append(f"checkpointing {run.checkpointing}")
    if run.gpus > 1:
        words.append(f"{run.sharding} on {run.gpus} GPUs" if run.sharding != "none" else f"{run.gpus} GPUs")
    if run.tensor_parallel > 1:
        words.append(f"tensor parallel {run.tensor_parallel}")
    if run.offload != "none":
        words.append(f"{run.offload} offloaded")
    return ", ".join(words)
