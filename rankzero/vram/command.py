"""``rankzero vram``: the estimator on the command line."""

from __future__ import annotations

import argparse
import importlib.util
import json
import sys
from dataclasses import MISSING, fields
from typing import Any, get_args, get_origin, get_type_hints

from rankzero.gpus import GPUS, Gpu, find_gpu
from rankzero.vram.accuracy import accuracy, groups
from rankzero.vram.allocator import context_bytes, traced_overhead
from rankzero.vram.catalog import BUILT_IN
from rankzero.vram.estimator import Estimate, estimate, run_words
from rankzero.vram.fit import remedies, sizes, slowdown, trains_other
from rankzero.vram.model import find_config, load_model
from rankzero.vram.parameters import UnknownFamily
from rankzero.vram.rows import Prediction, predict, read_rows
from rankzero.vram.run import TARGETS, Run

GIB = 2**30


class Vram:
    """estimate the GPU memory that a training run needs"""

    @staticmethod
    def add_arguments(parser: argparse.ArgumentParser) -> None:
        """Declare the options: one for each field of a run, and what to do with it."""
        parser.add_argument(
            "model",
            metavar="MODEL",
            nargs="?",
            help="a built-in name (see --list), a config.json, a "
            "folder with one, or a hub id such as org/name when online",
        )
        hints = get_type_hints(Run)
        for field in fields(Run):
            option, kind = "--" + field.name.replace("_", "-"), hints[field.name]
            default = "" if field.default is MISSING else f" (default: {_words(field.default)})"
            if kind is bool:
                parser.add_argument(option, dest=field.name, action="store_const", const=True)
            elif get_origin(kind) is None and kind in (int, float):
                parser.add_argument(option, dest=field.name, metavar="N", help=default.strip())
            elif field.name == "lora_targets":
                parser.add_argument(
                    option,
                    dest=field.name,
                    metavar="NAMES",
                    help=f"separated by commas, of {', '.join(TARGETS)}{default}",
                )
            else:
                parser.add_argument(
                    option,
                    dest=field.name,
                    metavar="NAME",
                    help=f"one of {', '.join(map(str, get_args(kind)))}{default}",
                )
        parser.add_argument("--gpu", metavar="CARD", help=f"does it fit? one of {', '.join(GPUS)}")
        parser.add_argument(
            "--fit",
            action="store_true",
            help="with --gpu: the largest micro-batch and sequence that "
            "fit, and the cheapest changes that make a misfit fit",
        )
        parser.add_argument("--trace", action="store_true", help="also run the real model on tensors without memory")
        parser.add_argument("--rows", metavar="FILE", help="a CSV of measured rows: predict each and print the errors")
        parser.add_argument("--list", action="store_true", help="name the built-in models")
        parser.add_argument("--json", action="store_true", help="print one JSON object")

    @staticmethod
    def run(args: argparse.Namespace) -> int:
        """Exit status: 0, or 1 if the run does not fit the card, or 2 for a bad option or model."""
        try:
            if args.list:
                print(json.dumps(sorted(BUILT_IN)) if args.json else "\n".join(sorted(BUILT_IN)))
                return 0
            if args.rows is not None:
                return _rows(args)
            if args.model is None:
                raise ValueError("MODEL: it is missing; name a model, a config.json, or use --rows FILE or --list")
            return _estimate(args)
        except ValueError as error:
            if args.json:
                print(json.dumps({"error": str(error)}))
            else:
                print(f"rankzero vram: {error}", file=sys.stderr)
            return 2


def _words(value: Any) -> str:
    return ",".join(value) if isinstance(value, tuple) else str(value)


def run_of(args: argparse.Namespace) -> Run:
    """The run that the options describe; adapters go with weights in bf16 unless a precision is named."""
    hints, given = get_type_hints(Run), {}
    for field in fields(Run):
        value = getattr(args, field.name)
        if value is None:
            continue
        if field.name == "lora_targets":
            value = tuple(name.strip() for name in value.split(",") if name.strip())
        elif hints[field.name] in (int, float):
            value = _number(field.name, value, hints[field.name])
        given[field.name] = value
    if given.get("method", "full") != "full":
        given.setdefault("precision", "bf16_pure")
    return Run(**given)


def _number(name: str, text: str, kind: type) -> int | float:
    try:
        return kind(text)
    except ValueError:
        raise ValueError(f"{name}: {text!r} is not a {'whole ' if kind is int else ''}number") from None


def _estimate(args: argparse.Namespace) -> int:
    run = run_of(args)
    if args.fit and args.gpu is None:
        raise ValueError(f"--fit: it needs --gpu; one of {', '.join(GPUS)}")
    card = None if args.gpu is None else find_gpu(args.gpu)
    try:
        model = load_model(args.model)
    except UnknownFamily as unknown:
        return _by_trace(args, run, card, unknown)
    result = estimate(model, run, card)
    report, lines = result.json(), [result.text()]
    if args.trace:
        from rankzero.vram.tracer import trace

        traced = trace(model, run)
        report["trace_bytes"] = traced.peak_bytes
        lines.append(
            f"The real model on tensors without memory: {traced.peak_bytes / GIB:.2f} GiB of live tensors, "
            f"{result.allocated_bytes / traced.peak_bytes - 1:+.1%} by formula."
        )
    if args.fit:
        report["fit"], words = _fit(result)
        lines.append(words)
    print(json.dumps(report) if args.json else "\n".join(lines))
    return 1 if result.fits is False else 0


def _by_trace(args: argparse.Namespace, run: Run, card: Gpu | None, unknown: UnknownFamily) -> int:
    """A model without closed formulas, such as an encoder or a vision model: what the real one takes."""
    config, name = find_config(args.model)
    if importlib.util.find_spec("transformers") is None:
        raise ValueError(
            f"{unknown}; with transformers (pip install 'rankzero[finetune]') the real model can be traced"
        )
    if args.fit:
        raise ValueError(f"--fit: it needs closed formulas; {unknown}")
    from rankzero.vram.tracer import trace

    traced = trace(config, run)
    parts = {part: size for part, size in traced.breakdown.items() if size}
    parts["allocator"] = round(traced_overhead(traced.breakdown["activations"]))
    parts["CUDA context"] = context_bytes(run)
    needed = sum(parts.values())
    fits = None if card is None else needed <= card.usable_bytes
    if args.json:
        report = {"model": name, "parameters": traced.parameters, "allocated_bytes": traced.peak_bytes}
        report |= {"device_bytes": needed, "peak": traced.peak_moment, "phases": traced.phases, "breakdown": parts}
        report |= {"gpu": None if card is None else card.name, "fits": fits, "trace_bytes": traced.peak_bytes}
        print(json.dumps(report))
    else:
        print(f"{name}: {traced.parameters:,} parameters, {run_words(run)}; the real model, traced\n")
        print("\n".join(f"  {part:<17} {size / GIB:9.2f} GiB" for part, size in parts.items()))
        print(f"  {'on the device':<17} {needed / GIB:9.2f} GiB\n\nThe peak is at: {traced.peak_moment}.")
        if card is not None:
            print(f"On {card.name} ({card.usable_bytes / GIB:.1f} GiB usable) it {'fits' if fits else 'does not fit'}.")
    return 1 if fits is False else 0


def _fit(result: Estimate) -> tuple[dict[str, Any], str]:
    """What fits the card, as data and as words."""
    model, run, card = result.model, result.run, result.gpu
    largest = sizes(model, run, card)
    data: dict[str, Any] = {"largest": largest}
    lines = [
        "",
        f"Largest on {card.name}: micro-batch {largest['micro_batch']} of {run.seq_len} tokens, or "
        f"{run.micro_batch} × {largest['seq_len']} tokens.",
    ]
    if not result.fits:
        found = remedies(model, run, card)
        data["changes"] = [
            {
                "change": [change.words for change in chosen],
                "slowdown": round(slowdown(chosen), 2),
                "device_bytes": changed.device_bytes,
                "other_training": trains_other(chosen),
            }
            for chosen, changed in found
        ]
        lines.append(
            "It would fit with (least slow first; ×1.33 is a third more time per step):"
            if found
            else "No set of up to three changes makes it fit."
        )
        for chosen, changed in found:
            words = "; ".join(f"{change.words} ({change.why})" for change in chosen)
            words += "; this trains something else" if trains_other(chosen) else ""
            lines.append(f"  ×{slowdown(chosen):.2f}  {changed.device_bytes / GIB:6.2f} GiB  {words}")
    return data, "\n".join(lines)


def _rows(args: argparse.Namespace) -> int:
    predictions = [predict(row) for row in read_rows(args.rows)]
    if not predictions:
        raise ValueError(f"--rows: {args.rows} has no rows below its first line")
    if args.json:
        print(json.dumps(_rows_json(predictions)))
        return 0
    print(f"{'id':>5} {'kind':<9} {'measured':>8} {'predicted':>9} {'error':>7}  row")
    for prediction in predictions:
        row = prediction.row
        name = f"{row.get('source')}: {row.get('model')}, {row.get('method')}, {row.get('n_gpus')} GPU"
        if prediction.estimate is None:
            print(f"{row.get('id', ''):>5} {prediction.kind:<9} not predicted: {prediction.reason}  [{name}]")
            continue
        print(
            f"{row.get('id', ''):>5} {prediction.kind:<9} {prediction.measured_gib:8.2f} "
            f"{prediction.predicted_gib:9.2f} {prediction.error:+7.1%}  {name}, {prediction.estimate.peak}"
        )
    print()
    print(f"{'rows':<28} {'n':>4} {'mean':>6} {'median':>6} {'p90':>6} {'worst':>7} {'signed':>7} {'< -10 %':>7}")
    for name, of_group in groups(predictions).items():
        a = accuracy(of_group)
        print(
            f"{name:<28} {a.rows:4} {a.mean:6.1%} {a.median:6.1%} {a.p90:6.1%} {a.worst:+7.1%} {a.signed:+7.1%} "
            f"{a.under:7.1%}"
        )
    left = sum(prediction.estimate is None for prediction in predictions)
    print(
        f"{len(predictions) - left} of {len(predictions)} rows predicted"
        + (f"; {left} not, with the reason above" if left else "")
    )
    return 0


def _rows_json(predictions: list[Prediction]) -> dict[str, Any]:
    rows = []
    for prediction in predictions:
        made = prediction.estimate
        rows.append(
            {
                "id": prediction.row.get("id"),
                "source": prediction.row.get("source"),
                "kind": prediction.kind,
                "measured_gib": None if made is None else prediction.measured_gib,
                "predicted_gib": None if made is None else round(prediction.predicted_gib, 4),
                "error": None if made is None else round(prediction.error, 5),
                "allocated_gib": None if made is None else round(made.allocated_bytes / GIB, 4),
                "reserved_gib": None if made is None else round(made.reserved_bytes / GIB, 4),
                "device_gib": None if made is None else round(made.device_bytes / GIB, 4),
                "peak": None if made is None else made.peak,
                "reason": prediction.reason,
            }
        )
    statistics = {name: accuracy(of_group).json() for name, of_group in groups(predictions).items()}
    return {"rows": rows, "statistics": statistics, "predicted": sum(row["reason"] is None for row in rows)}
