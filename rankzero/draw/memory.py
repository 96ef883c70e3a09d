"""What fills the memory: over the operators of a step, and part by part for several runs."""

from __future__ import annotations

from collections.abc import Mapping

from rankzero.draw.style import CARD, COLOURS, FAINT, INK, Picture, card, size_words
from rankzero.observe.step import MOMENTS, PURPOSES, StepMemory

#: purpose or part → colour and hatch, so that colour is not alone
_LOOKS = {
    "weights": (COLOURS[0], ""),
    "optimizer states": (COLOURS[2], "///"),
    "gradients": (COLOURS[1], "\\\\\\"),
    "activations": (COLOURS[5], "..."),
    "logits and loss": (COLOURS[3], "xxx"),
    "temporaries": (COLOURS[4], ""),
    "other": (COLOURS[4], ""),
    "allocator": (COLOURS[7], ""),
    "CUDA context": (COLOURS[6], "---"),
}


def memory_stack(step: StepMemory) -> Picture:
    """The live bytes of a training step, stacked by purpose over its operators; the peak is marked."""
    samples = step.samples
    figure, axes = card(7.2, 3.9, "live bytes, operator by operator")
    purposes = [purpose for purpose in PURPOSES if any(sample.bytes[purpose] for sample in samples)]
    below = [0.0] * len(samples)
    for purpose in purposes:
        colour, hatch = _LOOKS[purpose]
        above = [start + sample.bytes[purpose] / 2**20 for start, sample in zip(below, samples, strict=True)]
        axes.fill_between(range(len(samples)), below, above, step="post", facecolor=colour, hatch=hatch,
                          edgecolor="white", linewidth=0.4, label=purpose)  # fmt: skip
        below = above
    top = max((sample.total for sample in samples), default=1) / 2**20
    for number in range(1, len(samples)):
        if samples[number].moment != samples[number - 1].moment:
            axes.axvline(number, color=INK, linewidth=0.8, linestyle=":")
    for moment in MOMENTS:
        places = [number for number, sample in enumerate(samples) if sample.moment == moment]
        if places:
            axes.text(sum(places) / len(places), 1.17 * top, moment, ha="center", va="top", color=INK, fontsize=9)
    if samples:
        at = max(range(len(samples)), key=lambda number: samples[number].total)
        axes.plot([at], [1.03 * top], "v", color=INK, markersize=7, clip_on=False)
    axes.set_ylim(0, 1.2 * top)
    axes.set_xlim(0, max(1, len(samples) - 1))
    axes.set_xlabel("operators", color=INK, fontsize=10)
    axes.set_ylabel("MiB", color=INK, fontsize=10)
    _legend(axes)
    told = []
    for moment in MOMENTS:
        if any(sample.moment == moment for sample in samples):
            peak = step.peak_of(moment)
            told.append(f"{moment} up to {size_words(peak.total)} ({_parts(peak.bytes)})")
    where = f" The peak is in {step.peak.moment}, after {step.peak.operator}." if samples else ""
    return Picture(figure, f"Live memory of a training step: {'; '.join(told) or 'nothing ran'}.{where}")


def bytes_by_part(runs: Mapping[str, Mapping[str, float]], limits: Mapping[str, float] | None = None) -> Picture:
    """One stacked bar per run, from bytes by part; ``limits`` are lines to compare with, such as cards.

    Args:
        runs: name of the run → part → bytes.
        limits: name → bytes.
    """
    limits = limits or {}
    parts = list(dict.fromkeys(part for sizes in runs.values() for part in sizes if sizes[part]))
    figure, axes = card(7.2, 0.5 * len(runs) + 1.9, "GiB by part")
    left = [0.0] * len(runs)
    for number, part in enumerate(parts):
        widths = [sizes.get(part, 0.0) / 2**30 for sizes in runs.values()]
        colour, hatch = _LOOKS.get(part, (COLOURS[number % len(COLOURS)], "+++"))
        axes.barh(range(len(runs)), widths, left=left, height=0.62, color=colour, hatch=hatch, edgecolor="white",
                  linewidth=0.5, label=part)  # fmt: skip
        left = [start + width for start, width in zip(left, widths, strict=True)]
    for name, size in limits.items():
        axes.axvline(size / 2**30, color=INK, linewidth=1.1, linestyle="--")
        axes.text(size / 2**30, -0.62, f" {name}", color=INK, fontsize=8, ha="left", va="center")
    for row, total in enumerate(left):
        box = {"facecolor": CARD, "edgecolor": "none", "pad": 0.8}
        axes.annotate(f"{total:.3g}", (total, row), (4, 0), textcoords="offset points", color=INK, fontsize=9,
                      va="center", bbox=box)  # fmt: skip
    axes.set_xlim(0, 1.1 * max([*left, *(size / 2**30 for size in limits.values()), 1e-9]))
    axes.set_ylim(len(runs) - 0.5, -0.85)
    axes.set_yticks(range(len(runs)), list(runs))
    axes.spines["bottom"].set_visible(True)
    axes.spines["bottom"].set_color(FAINT)
    _legend(axes)
    told = [f"{name}: {size_words(sum(sizes.values()))} ({_parts(sizes)})" for name, sizes in runs.items()]
    lines = [f"{name} has {size_words(size)}" for name, size in limits.items()]
    return Picture(figure, "Memory by part. " + "; ".join([*told, *lines]) + ".")


def _legend(axes) -> None:
    handles, labels = axes.get_legend_handles_labels()
    if not handles:
        return
    axes.figure.legend(
        handles, labels, loc="outside lower left", ncols=min(len(labels), 4), frameon=False, fontsize=9, labelcolor=INK
    )


def _parts(sizes: Mapping[str, float]) -> str:
    return ", ".join(f"{part} {size_words(size)}" for part, size in sizes.items() if size) or "nothing"
