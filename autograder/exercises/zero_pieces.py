"""Exercises zero_bytes and flatten_pad: the bytes of each stage, and one flat tensor for many."""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from types import SimpleNamespace
from typing import Any

import torch
from torch import Tensor

from autograder import compare
from autograder.exercise import Case, Exercise, Judgement
from autograder.exercises.common import as_number, bring_home, torch_generator
from rankzero.observe.observation import Observation

LESSON = "06_zero"

# -- in the rank: shipped there by value ----------------------------------------------------------------------


def drive_bytes(answers: SimpleNamespace, inputs: dict[str, Any]) -> list[Any]:
    return [as_number(answers.zero_bytes(*question)) for question in inputs["questions"]]


def drive_flat(answers: SimpleNamespace, inputs: dict[str, Any]) -> list[dict[str, Any]]:
    """Per list of tensors: the flat tensor, and a right one taken apart again, with who shares its memory."""
    seen = []
    for tensors, right in zip(inputs["tensors"], inputs["flats"], strict=True):
        mine = [tensor.clone() for tensor in tensors]
        flat = answers.flatten_pad(list(mine), inputs["world_size"])
        whole = right.clone()
        parts = answers.unflatten(whole, [tensor.shape for tensor in tensors])
        listed = list(parts) if isinstance(parts, (list, tuple)) else type(parts).__name__
        memory = whole.untyped_storage().data_ptr()
        shared = [isinstance(part, torch.Tensor) and part.untyped_storage().data_ptr() == memory for part in listed]
        seen.append({"flat": bring_home(flat), "tensors": mine, "parts": listed, "shared": shared})
    return seen


# -- zero_bytes -----------------------------------------------------------------------------------------------

TABLE, UNEVEN = "the paper's table, all stages", "other sizes, also such as do not divide"
STAGE_WORDS = (
    "nothing is sharded",
    "optimizer states are sharded",
    "states and gradients are sharded",
    "states, gradients and weights are sharded",
)


def bytes_per_rank(parameters: int, world_size: int, stage: int, state_bytes: int = 12) -> int:
    """Bytes of a rank: weights 2, gradients 2 and AdamW's part, each sharded from its stage on."""
    parts = ((2, 3), (2, 2), (state_bytes, 1))
    return sum(-(-each * parameters // (world_size if stage >= since else 1)) for each, since in parts)


def bytes_cases(rng: random.Random) -> list[Case]:
    def case(name: str, questions: list[tuple[int, int, int]], judgement: str, hidden: bool = False) -> Case:
        return Case(name, [{"questions": questions}], (judgement,), hidden=hidden)

    drawn = [(rng.randint(10**6, 10**11), rng.choice([3, 6, 7, 24, 96, 1000])) for _ in range(6)]
    return [
        case("7.5 billion parameters, 64 ranks", [(7_500_000_000, 64, stage) for stage in range(4)], TABLE),
        case("7.5 billion parameters, 1,024 ranks", [(7_500_000_000, 1024, stage) for stage in range(4)], TABLE),
        case("one rank", [(1_000_000, 1, stage) for stage in range(4)], UNEVEN),
        case("1,000,003 parameters, 8 ranks", [(1_000_003, 8, stage) for stage in range(4)], UNEVEN),
        case("other models and worlds", [(*one, stage) for one in drawn for stage in range(4)], UNEVEN, hidden=True),
    ]


def _bytes(case: Case, seen: Observation) -> str | None:
    questions, answers = case.inputs[0]["questions"], seen.results[0]
    for question, got in zip(questions, answers, strict=True):
        want = bytes_per_rank(*question)
        if not isinstance(got, float):
            return f"`zero_bytes` returned {compare.describe(got)}; a number of bytes was expected."
        if not abs(got - want) <= 16:
            parameters, world_size, stage = question
            shown = "" if case.hidden else f" of {parameters:,} parameters on {world_size} ranks"
            numbers = "is wrong" if case.hidden else f"is {got:,.4g} bytes; {want:,} was expected"
            return f"Stage {stage}{shown} {numbers}. {_bytes_cause(question, got, questions, answers)}"
    return None


def _bytes_cause(question: tuple[int, int, int], got: float, questions: list, answers: list[Any]) -> str:
    def stage_as(other: int) -> Callable[[int, int, int], float]:
        return lambda parameters, world_size, _: bytes_per_rank(parameters, world_size, other)

    def with_states(each: int) -> Callable[[int, int, int], float]:
        return lambda parameters, world_size, stage: bytes_per_rank(parameters, world_size, stage, each)

    def times(factor: Callable[[int], float]) -> Callable[[int, int, int], float]:
        return lambda parameters, world_size, stage: bytes_per_rank(parameters, world_size, stage) * factor(world_size)

    def fp32(parameters: int, world_size: int, stage: int) -> float:
        doubled = ((4, 3), (4, 2), (12, 1))
        return sum(each * parameters / (world_size if stage >= since else 1) for each, since in doubled)

    everywhere = (
        (stage_as(3), "That is stage 3 for every stage."),
        (stage_as(0), "That is stage 0 for every stage: which parts does a stage shard?"),
        (fp32, "Weights and gradients seem to be fp32; here they are bf16, 2 bytes each."),
        (
            with_states(8),
            "AdamW's part seems to be 8 bytes: in mixed precision there is an fp32 master copy of the weights, too.",
        ),
        (with_states(4), "AdamW's part seems to be 4 bytes: it is a master copy and two states, 4 bytes each."),
        (with_states(16), "AdamW's part seems to be 16 bytes: master copy and two states are 4 bytes each, so 12."),
        (times(lambda world_size: world_size), "That is all ranks together; one rank's bytes were asked for."),
        (times(lambda _: 1e-9), "That is GB; bytes were asked for."),
        (times(lambda _: 2**-30), "That is GiB; bytes were asked for."),
        (times(lambda _: 2.0), "Twice too much."),
    )
    for hypothesis, cause in everywhere:
        if all(
            isinstance(answer, float) and _near(answer, hypothesis(*one))
            for one, answer in zip(questions, answers, strict=True)
        ):
            return cause
    parameters, world_size, stage = question
    for other in range(4):
        if other != stage and _near(got, bytes_per_rank(parameters, world_size, other)):
            return f"That is stage {other} ({STAGE_WORDS[other]}); in stage {stage}: {STAGE_WORDS[stage]}."
    return "Weights 2, gradients 2, AdamW 12 bytes per parameter: which of them does this stage shard?"


def _near(got: float, want: float) -> bool:
    return abs(got - want) <= 1e-4 * abs(want) + (16 if want > 1e5 else 0)


ZERO_BYTES = Exercise(
    id="zero_bytes",
    lesson=LESSON,
    names=("zero_bytes",),
    judgements=(Judgement(TABLE, 1, _bytes), Judgement(UNEVEN, 1, _bytes)),
    cases=bytes_cases,
    drive=drive_bytes,
    process_group=False,
)

# -- flatten_pad ----------------------------------------------------------------------------------------------

FLAT, BACK = "one flat tensor, zeros only at its end", "back again, as views"


def flat_of(tensors: Sequence[Tensor], world_size: int) -> Tensor:
    """All elements in order, and zeros up to a multiple of the world size."""
    flat = torch.cat([tensor.reshape(-1) for tensor in tensors])
    return torch.cat([flat, flat.new_zeros(-flat.numel() % world_size)])


def flat_cases(rng: random.Random) -> list[Case]:
    generator = torch_generator(rng)

    def case(name: str, world_size: int, *lists: list[tuple[int, ...]], dtype=torch.float32, hidden=False) -> Case:
        tensors = [[torch.randn(shape, generator=generator).to(dtype) + 2 for shape in shapes] for shapes in lists]
        flats = [flat_of(one, world_size) for one in tensors]
        # What stands in the padding of a flat tensor is nobody's business.
        dirty = [
            torch.cat([flat_of(one, 1), flat.new_full((5,), 9.0)]) for one, flat in zip(tensors, flats, strict=True)
        ]
        inputs = {"tensors": tensors, "world_size": world_size, "flats": dirty}
        return Case(name, [inputs], (FLAT, BACK), flats, hidden=hidden)

    sizes = [rng.randint(1, 9) for _ in range(4)]
    return [
        case("2 × 3 and 5 elements, 4 ranks", 4, [(2, 3), (5,)]),
        case("4 × 2 elements, 4 ranks: no padding", 4, [(4, 2)]),
        case("a single number among others, 3 ranks", 3, [(3, 2), (), (4,)]),
        case("2 elements, 5 ranks", 5, [(2,)]),
        case("1 rank", 1, [(3,), (2, 2)]),
        case("float64, 3 ranks", 3, [(7,), (2, 3, 2)], dtype=torch.float64),
        case("other shapes, 4 ranks", 4, [(sizes[0], 3), (sizes[1],), (2, sizes[2], 2)], hidden=True),
        case(
            "bfloat16, 3 ranks, one tensor is empty", 3, [(sizes[3],), (0, 4), (5,)], dtype=torch.bfloat16, hidden=True
        ),
        case("8 ranks, twice", 8, [(3, 3)], [(8,)], hidden=True),
    ]


def _flat(case: Case, seen: Observation) -> str | None:
    inputs = case.inputs[0]
    for result, want, tensors in zip(seen.results[0], case.expected, inputs["tensors"], strict=True):
        got, numel = result["flat"], sum(tensor.numel() for tensor in tensors)
        if isinstance(got, torch.Tensor) and got.dim() == 1 and got.shape != want.shape:
            count = f"{got.numel()} elements; {want.numel()} were expected"
            return f"`flatten_pad` returned {count}. {_length(got, want, numel)}"
        if problem := compare.misfit(got, want, "`flatten_pad` returned"):
            return problem
        if not torch.equal(got[:numel], want[:numel]):
            if torch.equal(got[got.numel() - numel :], want[:numel]):
                return "The padding stands at the front; it belongs at the end of the flat tensor."
            if torch.equal(got[:numel].sort().values, want[:numel].sort().values):
                return "The elements are there, but in another order: tensors one after the other, each row by row."
            return "The flat tensor holds other values: the tensors one after the other, padding only at the very end."
        if got[numel:].any():
            return (
                "The padding is not zero: is it `torch.empty`, or a repeated element? It would count in norms and sums."
            )
        for mine, tensor in zip(result["tensors"], tensors, strict=True):
            if not torch.equal(mine, tensor):
                return "`flatten_pad` changes the tensors that it is given."
    return None


def _length(got: Tensor, want: Tensor, numel: int) -> str:
    if got.numel() < numel:
        return "Elements are lost: round the length up, not down."
    if got.numel() == numel:
        return "The padding is missing: the length must be a multiple of the world size."
    if got.numel() > want.numel():
        return "That is more padding than needed: none if the length divides already, and none within, between tensors."
    return "The length must be the next multiple of the world size."


def _back(case: Case, seen: Observation) -> str | None:
    for result, tensors in zip(seen.results[0], case.inputs[0]["tensors"], strict=True):
        parts = result["parts"]
        if isinstance(parts, str):
            return f"`unflatten` returned an object of type {parts}; a list was expected."
        if len(parts) != len(tensors):
            return f"`unflatten` returned {len(parts)} tensors for {len(tensors)} shapes."
        for place, (part, tensor) in enumerate(zip(parts, tensors, strict=True)):
            if problem := compare.misfit(part, tensor, f"In place {place} `unflatten` returned"):
                return problem
            if not torch.equal(part, tensor):
                return f"Tensor {place} of `unflatten` holds other elements: each begins where the one before it ends."
        for place, (shared, tensor) in enumerate(zip(result["shared"], tensors, strict=True)):
            if not shared and tensor.numel():
                return (
                    f"Tensor {place} of `unflatten` is a copy: it must be a view of the flat tensor, so that a change "
                    "there shows here. Slices and `view` share memory; `clone`, `contiguous` and `torch.tensor` do not."
                )
    return None


FLATTEN_PAD = Exercise(
    id="flatten_pad",
    lesson=LESSON,
    names=("flatten_pad", "unflatten"),
    judgements=(Judgement(FLAT, 1, _flat), Judgement(BACK, 1, _back)),
    cases=flat_cases,
    drive=drive_flat,
    process_group=False,
)
