"""Exercise state_bytes: weights, gradients and optimizer states of six recipes, each judged for itself."""

from __future__ import annotations

import math
import random
from types import SimpleNamespace
from typing import Any

from autograder import compare
from autograder.exercise import Case, Exercise, Judgement
from autograder.exercises.common import as_number
from autograder.exercises.formulas import Slip, slip_of
from rankzero.observe.observation import Observation
from rankzero.vram.states import EIGHT_BIT, NF4_DOUBLE, NF4_SINGLE

LESSON = "01_vram"

FULL = "fp32, mixed and pure bf16, all trained"
EIGHT = "8-bit optimizer states"
FROZEN = "frozen weights: no gradient, no state"
QLORA = "NF4 with double quantization"
PARTS = ("weights", "gradients", "optimizer")


def drive_states(answers: SimpleNamespace, inputs: dict[str, Any]) -> Any:
    results = []
    for parameters, trainable, recipe, quantized in inputs["calls"]:
        more = {} if quantized is None else {"quantized": quantized}
        got = answers.state_bytes(parameters, trainable, recipe, **more)
        results.append({str(key): as_number(value) for key, value in got.items()} if isinstance(got, dict) else got)
    return results


# -- on the judge's side ----------------------------------------------------------------------------------

#: recipe → bytes per parameter: of a frozen weight, of a trained one, of its gradient, of its optimizer states
_BYTES = {
    "fp32": (4, 4, 4, 8),
    "bf16_mixed": (2, 2, 2, 12),
    "bf16_pure": (2, 2, 2, 4),
    "adam8bit": (2, 2, 2, 2 * EIGHT_BIT),
    "lora": (2, 4, 4, 8),
    "qlora": (2, 4, 4, 8),
}


def true_state_bytes(parameters: int, trainable: int, recipe: str, quantized: int | None = None) -> dict[str, float]:
    frozen_bytes, weight, gradient, state = _BYTES[recipe]
    frozen = parameters - trainable
    in_nf4 = 0 if recipe != "qlora" else frozen if quantized is None else quantized
    return {
        "weights": NF4_DOUBLE * in_nf4 + frozen_bytes * (frozen - in_nf4) + weight * trainable,
        "gradients": gradient * trainable,
        "optimizer": state * trainable,
    }


def state_cases(rng: random.Random) -> list[Case]:
    def case(name: str, judgement: str, *calls: tuple, hidden: bool = False) -> Case:
        padded = [(*call, None)[:4] for call in calls]
        return Case(name, [{"calls": padded}], (judgement,), hidden=hidden)

    def size() -> int:
        return rng.randint(10**8, 10**11)

    def partly(recipe: str) -> tuple:
        parameters = size()
        return parameters, parameters // rng.randint(2, 500), recipe

    whole = [(size(),) for _ in range(4)]
    seven = 6_738_415_616
    adapters = 39_976_960  # rank 16 on all linear layers of a Llama 2 7B
    base = size()
    return [
        case("fp32, a billion parameters", FULL, (10**9, 10**9, "fp32")),
        case("bf16_mixed, Llama 2 7B", FULL, (seven, seven, "bf16_mixed")),
        case("bf16_pure, Llama 2 7B", FULL, (seven, seven, "bf16_pure")),
        case("adam8bit, Llama 2 7B", EIGHT, (seven, seven, "adam8bit")),
        case("bf16_mixed, half of it frozen", FROZEN, (10**9, 5 * 10**8, "bf16_mixed")),
        case("lora, Llama 2 7B", FROZEN, (seven + adapters, adapters, "lora")),
        case("qlora, everything frozen in NF4", QLORA, (seven + adapters, adapters, "qlora")),
        case("qlora, only the blocks in NF4", QLORA, (seven + adapters, adapters, "qlora", 6_476_005_376)),
        *(case(f"{recipe}, another size", FULL, (n, n, recipe), hidden=True)
          for (n,), recipe in zip(whole, ("fp32", "bf16_mixed", "bf16_pure"), strict=False)),
        case("adam8bit, other sizes", EIGHT, (whole[3][0], whole[3][0], "adam8bit"), partly("adam8bit"), hidden=True),
        case("partly frozen", FROZEN, *map(partly, ("fp32", "bf16_mixed", "bf16_pure", "lora", "lora")), hidden=True),
        case("qlora, other sizes", QLORA, partly("qlora"), (base + base // 90, base // 90, "qlora", int(base * 0.8)),
             hidden=True),
    ]  # fmt: skip


def _states(case: Case, seen: Observation) -> str | None:
    for call, got in zip(case.inputs[0]["calls"], seen.results[0], strict=True):
        if not isinstance(got, dict):
            return f"It returned {compare.describe(got)}; a dict with weights, gradients and optimizer was expected."
        lacking = [part for part in PARTS if part not in got]
        if lacking:
            return f"The dict has no key {lacking[0]!r}; its keys are {', '.join(map(repr, got)) or 'none'}."
        right = true_state_bytes(*call)
        for part in PARTS:
            have, want = got[part], right[part]
            if type(have) is not float:
                return f"{part} is {compare.describe(have)}; a number of bytes was expected."
            if not math.isclose(have, want, rel_tol=1e-3, abs_tol=1.0):
                cause = slip_of(_slips(part), call, have, 1e-4) or _hint(part, call, have, want)
                if case.hidden:
                    return f"{part.capitalize()} of {call[2]} are wrong. {cause}"
                named = ", ".join(f"{value:,}" if isinstance(value, int) else repr(value) for value in call if value)
                return f"For ({named}) {part} are {have:,.0f} bytes; {want:,.0f} were expected. {cause}"
    return None


def _slips(part: str) -> list[Slip]:
    """Usual slips of one part: ``(parameters, trainable, recipe, quantized) → bytes``."""

    def of(recipes: str, formula, say: str) -> Slip:
        def slip(n, t, recipe, q):
            frozen = n - t
            return formula(n, t, frozen if q is None else q, frozen) if recipe in recipes.split() else math.nan

        return slip, say

    def right(n, t, recipe, q):
        return true_state_bytes(n, t, recipe, q)[part]

    common = [
        (lambda *call: right(*call) / 2**30, "That is in GiB; bytes were asked for."),
        (lambda *call: right(*call) / 1e9, "That is in GB; bytes were asked for."),
        (lambda *call: right(*call) * 1e9 / 2**30, "GB and GiB are mixed up: 1 GiB is 2**30 bytes, 1 GB is 10**9."),
        (lambda *call: right(*call) * 2**30 / 1e9, "GB and GiB are mixed up: 1 GiB is 2**30 bytes, 1 GB is 10**9."),
    ]
    everything = "fp32 bf16_mixed bf16_pure adam8bit lora qlora"
    if part == "weights":
        return [
            *common,
            of("bf16_mixed", lambda n, t, q, f: 4 * n, "In bf16_mixed the weights that compute are bf16, 2 bytes."),
            of("bf16_mixed", lambda n, t, q, f: 6 * n, "The fp32 master copy is counted with the optimizer here."),
            of("bf16_mixed", lambda n, t, q, f: 2 * n + 4 * t, "The fp32 master copy is counted with the optimizer."),
            of("lora", lambda n, t, q, f: 2 * n, "The adapters are fp32 here: 4 bytes each."),
            of("lora qlora", lambda n, t, q, f: 4 * n, "The frozen weights are bf16: 2 bytes each."),
            of("lora", lambda n, t, q, f: 2 * n + 4 * t, "`parameters` includes the adapters already."),
            of("qlora", lambda n, t, q, f: q / 2 + 2 * (f - q) + 4 * t,
               "The scales are missing: one byte per 64 weights, and 4 bytes per 64 · 256 of them."),
            of("qlora", lambda n, t, q, f: NF4_SINGLE * q + 2 * (f - q) + 4 * t,
               "That is NF4 without double quantization: the scales themselves take 8 bits, not 32."),
            of("qlora", lambda n, t, q, f: (0.5 + 1 / 64) * q + 2 * (f - q) + 4 * t,
               "The scales of the scales are missing: 4 bytes per 64 · 256 weights."),
            of("qlora", lambda n, t, q, f: NF4_DOUBLE * q + 4 * t,
               "What is frozen and not quantized (embedding, head, norms) is missing: 2 bytes each."),
            of("qlora", lambda n, t, q, f: NF4_DOUBLE * f + 4 * t,
               "Only `quantized` weights are in NF4; the other frozen ones are bf16, 2 bytes."),
            of("qlora", lambda n, t, q, f: NF4_DOUBLE * n, "The adapters are not quantized: fp32, 4 bytes each."),
            of("qlora", lambda n, t, q, f: NF4_DOUBLE * q + 2 * (n - q), "The adapters are fp32 here: 4 bytes each."),
        ]  # fmt: skip
    if part == "gradients":
        return [
            *common,
            of("fp32 lora qlora", lambda n, t, q, f: 4 * n, "Frozen weights have no gradient: count `trainable`."),
            of("bf16_mixed bf16_pure adam8bit lora", lambda n, t, q, f: 2 * n, "Frozen weights have no gradient: "
               "count `trainable`, in the dtype of the trained weights."),
            of("lora qlora", lambda n, t, q, f: 2 * t, "The adapters are fp32 here, and so are their gradients."),
            of("bf16_mixed bf16_pure adam8bit", lambda n, t, q, f: 4 * t, "Gradients have the dtype of the weights "
               "that compute: bf16, 2 bytes."),
            of(everything, lambda n, t, q, f: 0, "The gradients are missing."),
        ]  # fmt: skip
    frozen = "Frozen weights have no optimizer state: count `trainable`."
    return [
        *common,
        of("fp32 lora qlora", lambda n, t, q, f: 8 * n, frozen),
        of("bf16_mixed", lambda n, t, q, f: 12 * n, frozen),
        of("bf16_pure", lambda n, t, q, f: 4 * n, frozen),
        of("bf16_mixed", lambda n, t, q, f: 8 * t, "The fp32 master copy is missing: 4 bytes beside Adam's 8."),
        of("bf16_mixed", lambda n, t, q, f: 4 * t, "One fp32 copy is not enough: master copy and both moments are 12."),
        of("fp32", lambda n, t, q, f: 12 * t, "In fp32 the weights are the master copy: Adam's two moments, 8 bytes."),
        of("fp32 lora qlora", lambda n, t, q, f: 4 * t, "Adam keeps two moments, not one."),
        of("bf16_pure", lambda n, t, q, f: 2 * t, "Adam keeps two moments, not one."),
        of("bf16_pure", lambda n, t, q, f: 8 * t, "In pure bf16 Adam's moments are bf16 too: 2 bytes each."),
        of("adam8bit", lambda n, t, q, f: 2 * t, "The scales are missing: 4 bytes per block of 256, for each moment."),
        of("adam8bit", lambda n, t, q, f: EIGHT_BIT * t, "Adam keeps two moments, not one."),
        of("adam8bit", lambda n, t, q, f: 2 * (1 + 4 / 64) * t, "Its blocks have 256 elements, not 64."),
        of("adam8bit", lambda n, t, q, f: (2 * EIGHT_BIT + 4) * t, "adam8bit keeps no fp32 master copy here."),
        of("lora qlora", lambda n, t, q, f: 12 * t, "The adapters are fp32 already: no master copy beside them."),
    ]


def _hint(part: str, call: tuple, have: float, want: float) -> str:
    bits = {"weights": "weight", "gradients": "gradient", "optimizer": "optimizer state"}[part]
    counted = "trainable" if part != "weights" else "parameters"
    number = call[1] if part != "weights" else call[0]
    return f"That is {have / number:.4g} bytes of {bits} per parameter in `{counted}`; {want / number:.4g} is right."


STATE_BYTES = Exercise(
    id="state_bytes",
    lesson=LESSON,
    names=("state_bytes",),
    judgements=tuple(Judgement(name, 1, _states) for name in (FULL, EIGHT, FROZEN, QLORA)),
    cases=state_cases,
    drive=drive_states,
    process_group=False,
)
