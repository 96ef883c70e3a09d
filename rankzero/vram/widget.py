"""The estimator as a widget: choose model, method and card, and watch the bar move."""

from __future__ import annotations

from html import escape

from rankzero.gpus import GPUS, find_gpu
from rankzero.vram.catalog import BUILT_IN
from rankzero.vram.estimator import Estimate, estimate
from rankzero.vram.run import Run

GIB = 2**30
#: Okabe and Ito's colours, apart for colour-blind eyes, each with the ink that is readable on it.
_PARTS = {
    "weights": ("#0072B2", "#ffffff"),
    "gradients": ("#E69F00", "#000000"),
    "optimizer states": ("#009E73", "#000000"),
    "activations": ("#CC79A7", "#000000"),
    "logits and loss": ("#D55E00", "#000000"),
    "temporaries": ("#56B4E9", "#000000"),
    "copies of weights": ("#F0E442", "#000000"),
    "gathered weights": ("#F0E442", "#000000"),
    "communication buffers": ("#56B4E9", "#000000"),
    "allocator": ("#999999", "#000000"),
    "CUDA context": ("#bbbbbb", "#000000"),
}
_METHODS = {
    "full, bf16 + fp32 master": {"method": "full", "precision": "bf16_mixed"},
    "full, pure bf16": {"method": "full", "precision": "bf16_pure"},
    "full, fp32": {"method": "full", "precision": "fp32"},
    "LoRA": {"method": "lora", "precision": "bf16_pure"},
    "QLoRA (NF4)": {"method": "qlora", "precision": "bf16_pure"},
}
_OPTIMIZERS = {"AdamW": "adamw", "AdamW, fused": "adamw_fused", "AdamW 8-bit": "adamw8bit", "SGD": "sgd"}
_LOSSES = {"transformers' own loss": "hf", "loss fused into the LM head": "linear"}


def calculator():
    """An ipywidgets calculator of training memory; in a notebook, let it be a cell's last line.

    Works with ipywidgets 7 and 8, and so in JupyterLab, Colab and VS Code. Without ipywidgets the same figures
    come from :func:`rankzero.vram.estimate`.
    """
    import ipywidgets as widgets

    wide = {"description_width": "110px"}
    inputs = {
        "model": widgets.Dropdown(options=sorted(BUILT_IN), value="mistral-7b", description="model", style=wide),
        "method": widgets.Dropdown(options=list(_METHODS), value="QLoRA (NF4)", description="method", style=wide),
        "optimizer": widgets.Dropdown(options=list(_OPTIMIZERS), description="optimizer", style=wide),
        "micro_batch": widgets.IntSlider(1, 1, 32, description="micro-batch", style=wide),
        "seq_len": widgets.SelectionSlider(
            options=[256 * 2**power for power in range(8)], value=2048, description="tokens each", style=wide
        ),
        "lora_rank": widgets.SelectionSlider(
            options=[4 * 2**power for power in range(6)], value=16, description="LoRA rank", style=wide
        ),
        "checkpointing": widgets.Checkbox(value=True, description="checkpoint every block", indent=False),
        "loss": widgets.Dropdown(options=list(_LOSSES), description="loss", style=wide),
        "gpus": widgets.SelectionSlider(options=[1, 2, 4, 8, 16, 32, 64], description="GPUs (FSDP)", style=wide),
        "gpu": widgets.Dropdown(options=list(GPUS), value="rtx4090", description="card", style=wide),
    }
    shown = widgets.HTML()

    def update(_change: object = None) -> None:
        shown.value = _picture(**{name: widget.value for name, widget in inputs.items()})

    for widget in inputs.values():
        widget.layout.width = "340px"
        widget.observe(update, "value")
    update()
    columns = list(inputs.values())
    flow = widgets.Layout(flex_flow="row wrap", display="flex")
    return widgets.VBox([widgets.Box(columns, layout=flow), shown])


def _picture(model, method, optimizer, micro_batch, seq_len, lora_rank, checkpointing, loss, gpus, gpu) -> str:
    """The bar and its words for the calculator's settings, as HTML."""
    try:
        run = Run(
            **_METHODS[method],
            optimizer=_OPTIMIZERS[optimizer],
            micro_batch=micro_batch,
            seq_len=seq_len,
            lora_rank=lora_rank,
            lora_targets=("q_proj", "k_proj", "v_proj", "o_proj"),
            checkpointing="full" if checkpointing else "none",
            loss=_LOSSES[loss],
            gpus=gpus,
            sharding="fsdp" if gpus > 1 else "none",
        )
        return bar(estimate(model, run, find_gpu(gpu)))
    except ValueError as error:
        return f"<p>{escape(str(error))}</p>"


def bar(result: Estimate) -> str:
    """An estimate as a stacked bar beside its card, as HTML with words for those who cannot see it."""
    card = result.gpu
    scale = max(result.device_bytes, card.usable_bytes) / 100
    verdict = "fits" if result.fits else "does not fit"
    words = (
        f"{result.device_bytes / GIB:.1f} GiB on each GPU: {verdict} {card.name} ({card.usable_bytes / GIB:.1f} GiB)"
    )
    pieces, legend = [], []
    for part, size in result.breakdown.items():
        colour, ink = _PARTS[part]
        share, amount = size / scale, f"{size / GIB:.2f} GiB"
        text = escape(part) if share > 12 else ""
        pieces.append(
            f"<div title='{escape(part)}: {amount}' style='width:{share:.2f}%;background:{colour};color:{ink};"
            f"overflow:hidden;white-space:nowrap;font-size:11px;line-height:34px;text-align:center'>{text}</div>"
        )
        swatch = f"width:10px;height:10px;background:{colour};margin-right:5px;border:1px solid #888"
        legend.append(
            "<span style='display:inline-block;margin-right:14px'>"
            f"<span style='display:inline-block;{swatch}'></span>{escape(part)} {amount}</span>"
        )
    limit = card.usable_bytes / scale
    label = escape(words + ". " + ", ".join(f"{part} {size / GIB:.2f} GiB" for part, size in result.breakdown.items()))
    return (
        f"<div style='max-width:720px;font-family:sans-serif;font-size:13px'><p style='margin:8px 0'><b>{escape(words)}"
        f"</b><br>peak at: {escape(result.peak)}</p><div role='img' aria-label='{label}' style='position:relative'>"
        f"<div style='display:flex;height:34px;background:#fbfbf8;border:1px solid #888'>{''.join(pieces)}</div>"
        f"<div style='position:absolute;left:{limit:.2f}%;top:-4px;height:44px;border-left:3px dashed #D55E00' "
        f"title='{escape(card.name)}'></div></div><p style='margin:10px 0;line-height:1.7'>{''.join(legend)}</p></div>"
    )
