"""Published measurements as runs: reads a table of measured rows, and says how far the estimate is off.

The columns are those of ``measured_vram.csv``. A row tells sizes and settings; which *code* ran follows from its
source, and is written down once in :data:`SOFTWARE`: facts such as the transformers version that a benchmark pins,
each with its origin. Nothing here is a factor that was fitted to a row.
"""

from __future__ import annotations

import csv
import math
from dataclasses import dataclass
from pathlib import Path

from rankzero.vram.estimator import Estimate, estimate
from rankzero.vram.model import Model
from rankzero.vram.run import Run
from rankzero.vram.software import Software, software_of

GIB = 2**30
NEEDED = (
    "id",
    "source",
    "model",
    "params",
    "layers",
    "hidden",
    "ffn",
    "heads",
    "kv_heads",
    "head_dim",
    "vocab",
    "method",
    "precision",
    "optimizer",
    "micro_batch",
    "seq_len",
    "act_ckpt",
    "attention",
    "loss_impl",
    "n_gpus",
    "sharding",
    "offload",
    "measured_gib",
    "kind",
)
#: The kinds of measurement, and the figure of an estimate that each is compared with.
KINDS = {"allocated": "allocated_bytes", "reserved": "reserved_bytes", "smi": "device_bytes"}
_TARGETS = {
    "q": "q_proj",
    "k": "k_proj",
    "v": "v_proj",
    "o": "o_proj",
    "gate": "gate_proj",
    "up": "up_proj",
    "down": "down_proj",
    "head": "lm_head",
    "c_attn": "qkv",
    "qkv": "qkv",
    "all-linear": "all-linear",
}


class NotExpressible(ValueError):
    """A row that has no run here; the message says why."""


@dataclass(frozen=True)
class Prediction:
    """A row and what became of it: an estimate, or the reason why there is none.

    Attributes:
        row: the row's own columns.
        measured_gib: the row's headline figure.
        kind: ``allocated``, ``reserved`` or ``smi``.
        reason: why the row is not predicted, if it is not.
    """

    row: dict[str, str]
    measured_gib: float = math.nan
    kind: str = ""
    estimate: Estimate | None = None
    reason: str | None = None

    @property
    def predicted_gib(self) -> float:
        """The figure of the row's kind, in GiB; NaN without an estimate."""
        return math.nan if self.estimate is None else getattr(self.estimate, KINDS[self.kind]) / GIB

    @property
    def error(self) -> float:
        """Signed relative error: below 0 the estimate is too small."""
        return self.predicted_gib / self.measured_gib - 1

    @property
    def variable_length(self) -> bool:
        """Whether the run's batches differ in length, so that the allocator's pieces do not fit one another."""
        return software_of(self.row).variable_length


def read_rows(path: str | Path) -> list[dict[str, str]]:
    """The rows of a table.

    Raises:
        ValueError: the file cannot be read, is empty, or lacks columns (which).
    """
    try:
        with open(path, newline="", encoding="utf-8") as file:
            reader = csv.DictReader(file)
            rows = list(reader)
            columns = reader.fieldnames
    except (OSError, UnicodeDecodeError, csv.Error) as error:
        raise ValueError(f"--rows: {path} cannot be read: {getattr(error, 'strerror', None) or error}") from None
    if not columns:
        raise ValueError(f"--rows: {path} is empty; its first line must name the columns {', '.join(NEEDED)}")
    missing = [name for name in NEEDED if name not in columns]
    if missing:
        raise ValueError(f"--rows: {path} lacks the columns {', '.join(missing)}")
    return [{name: (value or "").strip() for name, value in row.items() if isinstance(name, str)} for row in rows]


def predict(row: dict[str, str]) -> Prediction:
    """The estimate for a row; where there is none, the reason."""
    try:
        kind = row["kind"]
        if kind not in KINDS:
            raise NotExpressible(f"kind: {kind!r} is no measurement; allowed are {', '.join(KINDS)}")
        measured = _number(row, "measured_gib")
        if measured <= 0:
            raise NotExpressible(f"measured_gib: {measured} is not above 0")
        return Prediction(row, measured, kind, estimate(model_of(row), run_of(row)))
    except ValueError as error:
        return Prediction(row, kind=row.get("kind", ""), reason=str(error))


def model_of(row: dict[str, str]) -> Model:
    """The model that a row's columns describe."""
    code = software_of(row)
    hidden, heads = _whole(row, "hidden"), _whole(row, "heads")
    return Model(
        name=row["model"],
        parameters=_whole(row, "params"),
        layers=_whole(row, "layers"),
        hidden=hidden,
        ffn=_whole(row, "ffn"),
        heads=heads,
        kv_heads=_whole(row, "kv_heads"),
        head_dim=_whole(row, "head_dim", default=hidden // heads),
        vocab=_whole(row, "vocab"),
        tied=row.get("tied_emb") == "1",
        gated=row.get("gated_mlp", "1") != "0",
        norm=code.norm,
        experts=code.experts,
        experts_per_token=code.experts_per_token,
        norms_per_layer=code.norms_per_layer,
        parallel=code.parallel,
        shared_norm=code.shared_norm,
        dropout=code.dropout,
        soft_capped=code.soft_capped,
    )


def run_of(row: dict[str, str]) -> Run:
    """The run that a row's columns describe."""
    code = software_of(row)
    method = row["method"]
    if method not in ("full", "lora", "qlora"):
        raise NotExpressible(f"method: {method!r} has no formula here; there are full, lora and qlora")
    precision, autocast = _precision(row)
    optimizer, in_backward = _optimizer(row, code)
    sharding = _sharding(row, code)
    offload, checkpointing = _offload(row)
    states_fp32 = row.get("optim_state_dtype") == "fp32" and precision == "bf16_pure" and method == "full"
    weights = row.get("base_weight_dtype", "")
    return Run(
        method=method,
        precision=precision,
        optimizer=optimizer,
        optimizer_in_backward=in_backward,
        states="fp32" if states_fp32 else "weights",
        micro_batch=_whole(row, "micro_batch"),
        seq_len=_whole(row, "seq_len"),
        checkpointing=checkpointing,
        attention=_attention(row),
        repeat_kv=code.repeat_kv,
        kernels="fused" if row.get("compile") == "1" else code.kernels,
        autocast=autocast,
        loss=_loss(row, code),
        lora_rank=_whole(row, "lora_rank", default=8),
        lora_targets=_targets(row),
        lora_dropout=code.lora_dropout,
        adapter_dtype=code.adapter_dtype,
        quantization="nf4"
        if "dq" in weights or code.double_quantization
        else "int8"
        if weights == "int8"
        else "nf4_single",
        kbit_fp32=code.kbit_fp32,
        fp32_stream=code.fp32_stream,
        kv_cache=code.kv_cache,
        prefetch=code.prefetch,
        quantized_inputs=code.quantized_inputs,
        quantize_head=code.quantize_head,
        stack=code.stack,
        experts="looped",
        context_mib=code.context_mib,
        variable_length=code.variable_length,
        accumulation=1 if in_backward else code.accumulation,
        gpus=_whole(row, "n_gpus"),
        tensor_parallel=_whole(row, "tp", default=1),
        sharding=sharding,
        offload=offload,
    )


def _precision(row: dict[str, str]) -> tuple[str, bool]:
    """The precision, and whether the forward runs under autocast."""
    words, weights = row["precision"], row.get("base_weight_dtype", "")
    if "fp32 shards" in words or (("autocast" in words or "amp" in words) and weights == "fp32"):
        return "autocast", True
    if "autocast" in words or "amp" in words:
        return "bf16_pure", True
    if words.endswith("-mp") or "deepspeed" in words or "mixed" in words:
        return "bf16_mixed", False
    if words.startswith("fp32"):
        return "fp32", False
    if words.startswith(("bf16", "fp16")):
        return ("autocast", True) if weights == "fp32" else ("bf16_pure", False)
    if words.startswith("fp8"):
        raise NotExpressible(f"precision: {words!r} has no formula here")
    raise NotExpressible(f"precision: {words!r} is not known")


def _optimizer(row: dict[str, str], code: Software) -> tuple[str, bool]:
    words = row["optimizer"].lower()
    in_backward = "in_bwd" in words or "in_backward" in words or "lomo" in words
    name = words.split("+")[0]
    if "galore" in words:
        raise NotExpressible(f"optimizer: {row['optimizer']!r} keeps low-rank states, which have no formula here")
    paged, eight, four = "paged" in name, "8bit" in name or "8-bit" in name, "4bit" in name
    if "lomo" in name:
        return "sgd", True
    if "adafactor" in name:
        return "adafactor", in_backward
    if "sgd" in name:
        return "sgd_momentum" if "momentum" in name else "sgd", in_backward
    if "adam" not in name:
        raise NotExpressible(f"optimizer: {row['optimizer']!r} is not known")
    if eight:
        return "paged_adamw8bit" if paged else "adamw8bit", in_backward
    if four:
        return "adamw4bit", in_backward
    if paged:
        return "paged_adamw", in_backward
    if "foreach" in name:
        return "adamw", in_backward
    return "adamw_fused" if "fused" in name else code.adamw, in_backward


def _sharding(row: dict[str, str], code: Software) -> str:
    words = row["sharding"].lower()
    if _whole(row, "n_gpus") == 1 or words in ("none", "") or words.startswith("tp"):
        return "none"
    for name in ("zero1", "zero2", "zero3"):
        if words.replace("-", "").startswith(name):
            return name
    if words.startswith("ddp"):
        return "ddp"
    if words.startswith(("fsdp2", "fsdp1")):
        return "fsdp" if words.startswith("fsdp2") else "fsdp1"
    if words.startswith("fsdp"):
        return code.fsdp
    raise NotExpressible(f"sharding: {row['sharding']!r} is not known")


def _offload(row: dict[str, str]) -> tuple[str, str]:
    """What is offloaded, and the checkpointing (which may itself be offloaded)."""
    words, checkpointing = row["offload"].lower(), row["act_ckpt"].lower()
    if words in ("", "none"):
        offload = "none"
    elif words == "act":
        return "none", "offload"
    elif words.startswith("param"):
        offload = "parameters"
    elif words.startswith("opt"):
        offload = "optimizer"
    else:
        raise NotExpressible(f"offload: {row['offload']!r} is not known")
    if "offload" in checkpointing:
        return offload, "offload"
    if checkpointing in ("none", "no", ""):
        return offload, "none"
    if checkpointing.startswith("sel") or checkpointing in ("op", "sac"):
        return offload, "selective"
    if checkpointing == "full":
        return offload, "full"
    raise NotExpressible(f"act_ckpt: {row['act_ckpt']!r} is not known")


def _attention(row: dict[str, str]) -> str:
    words = row["attention"].lower()
    if words.startswith("eager"):
        return "eager"
    if words.startswith(("flash", "fa")):
        return "flash"
    if words.startswith(("sdpa", "xformers", "mem", "flex", "?")) or not words:
        return "sdpa"
    raise NotExpressible(f"attention: {row['attention']!r} is not known")


def _loss(row: dict[str, str], code: Software) -> str:
    words = row["loss_impl"].lower()
    if words.startswith("chunk"):
        return code.chunked_loss
    if words.startswith(("liger", "cut", "cls", "none")):
        return "linear"
    if words.startswith("eager-fp32"):
        return code.plain_loss
    if words.startswith(("fused", "unsloth", "foak")):
        return code.fused_loss
    if "no-upcast" in words or "no upcast" in words:
        return "no_upcast"
    if words.startswith(("hf", "eager", "?")):
        return code.hf_loss
    raise NotExpressible(f"loss_impl: {row['loss_impl']!r} is not known")


def _targets(row: dict[str, str]) -> tuple[str, ...]:
    if row["method"] == "full":
        return ("q_proj", "v_proj")
    gated = row.get("gated_mlp", "1") != "0"
    names: list[str] = []
    for word in row.get("lora_targets", "").split(","):
        word = word.strip()
        if word == "mlp":
            names += (["gate_proj"] if gated else []) + ["up_proj", "down_proj"]
        elif word == "gate" and not gated:
            continue
        elif word in _TARGETS:
            names.append(_TARGETS[word])
        elif word:
            raise NotExpressible(f"lora_targets: {word!r} is not known; allowed are {', '.join(_TARGETS)}, mlp")
    if not names:
        raise NotExpressible("lora_targets: it is empty")
    return tuple(names)


def _number(row: dict[str, str], name: str) -> float:
    try:
        value = float(row[name])
    except ValueError:
        raise NotExpressible(f"{name}: {row[name]!r} is not a number") from None
    if not math.isfinite(value):
        raise NotExpressible(f"{name}: {row[name]!r} is not a finite number")
    return value


def _whole(row: dict[str, str], name: str, default: int | None = None) -> int:
    if row.get(name, "") in ("", "?") and default is not None:
        return default
    value = _number(row, name)
    if value != int(value) or value < 1:
        raise NotExpressible(f"{name}: {row[name]!r} is not a whole number of 1 or more")
    return int(value)
