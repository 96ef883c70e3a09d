"""Exercise logits_bytes: the tensors of the logits' shape that are alive at the peak of the loss."""

from __future__ import annotations

import random
from types import SimpleNamespace
from typing import Any

from autograder.exercise import Case, Exercise, Judgement
from autograder.exercises.common import as_number
from autograder.exercises.formulas import Slip, formula_case, formula_verdict
from rankzero.observe.observation import Observation
from rankzero.vram.activations import LOGITS

LESSON = "01_vram"

ONE_TOKEN = "bytes per logit at the peak"
ALL_TOKENS = "all tokens, the whole vocabulary"


def drive_logits(answers: SimpleNamespace, inputs: dict[str, Any]) -> Any:
    return [as_number(answers.logits_bytes(*arguments)) for arguments in inputs["calls"]]


def true_logits_bytes(vocab_size: int, micro_batch: int, seq_len: int) -> float:
    return LOGITS["hf_kept"] * vocab_size * micro_batch * seq_len


def logits_cases(rng: random.Random) -> list[Case]:
    def calls(count: int) -> list[tuple]:
        return [(rng.randint(10**3, 3 * 10**5), rng.randint(2, 32), rng.randint(100, 9000)) for _ in range(count)]

    one = [(rng.randint(10**3, 3 * 10**5), 1, 1) for _ in range(3)]
    return [
        formula_case("one token", [(32000, 1, 1), (128256, 1, 1)], ONE_TOKEN),
        formula_case("8 × 2048 tokens of Llama 3", [(128256, 8, 2048)], ALL_TOKENS),
        formula_case("one token of other vocabularies", one, ONE_TOKEN, hidden=True),
        formula_case("other micro-batches", calls(5), ALL_TOKENS, hidden=True),
    ]


_PER_LOGIT = {
    1: "Each logit has several bytes: the bf16 logits 2, and what the loss makes of them in fp32.",
    2: "That is the bf16 logits alone; the loss makes three fp32 tensors of that size.",
    4: "That is one fp32 copy alone; count all tensors of that size that are alive at once.",
    6: "Backward is missing: the NLL sends back a gradient, and log-softmax makes the logits' gradient of it.",
    8: "Backward holds more: bf16 logits 2, log-probabilities 4, and two fp32 gradients.",
    10: "One fp32 tensor is missing: log-probabilities, the NLL's gradient and the logits' gradient are three.",
    12: "The bf16 logits are still referenced: 2 bytes more.",
    16: "The logits are bf16, 2 bytes, not fp32.",
    18: "The fp32 copy of the logits is gone when backward peaks: nothing keeps it.",
}


def _logits(case: Case, seen: Observation) -> str | None:
    def scaled(bytes_each: float):
        return lambda v, b, s: bytes_each * v * b * s

    slips: list[Slip] = [
        (lambda v, b, s: 14 * v * s, "`micro_batch` is not in it."),
        (lambda v, b, s: 14 * v * b, "`seq_len` is not in it."),
        (lambda v, b, s: 14 * v * b * (s - 1), "Count all seq_len positions; the last one's logits exist, too."),
        (scaled(14 / 2**30), "That is in GiB; bytes were asked for."),
        (scaled(14 / 1e9), "That is in GB; bytes were asked for."),
        *((scaled(each), say) for each, say in _PER_LOGIT.items()),
    ]
    return formula_verdict(case, seen, true_logits_bytes, "vocab_size, micro_batch, seq_len", slips)


LOGITS_BYTES = Exercise(
    id="logits_bytes",
    lesson=LESSON,
    names=("logits_bytes",),
    judgements=(Judgement(ONE_TOKEN, 1, _logits), Judgement(ALL_TOKENS, 1, _logits)),
    cases=logits_cases,
    drive=drive_logits,
    process_group=False,
)
