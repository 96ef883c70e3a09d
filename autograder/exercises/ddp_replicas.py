"""Exercises broadcast_state and average_gradients: replicas that begin alike and stay alike."""

from __future__ import annotations

import random
from typing import Any

import torch
from torch import Tensor

from autograder import compare
from autograder.exercise import Case, Exercise, Judgement
from autograder.exercises.common import line_of, torch_generator
from autograder.exercises.ddp_ranks import drive_average, drive_broadcast_state, make_model, state_of
from rankzero.observe.observation import Observation

LESSON = "05_ddp"


def never_waited(seen: Observation) -> str:
    """A cause, if a rank made an asynchronous call whose end it never waited for; else nothing."""
    for message in seen.messages:
        if message.done_seconds is None:
            return (
                f"A `wait()` is missing: rank {message.rank} goes on before its {message.kind}{line_of(message)} is "
                "complete."
            )
    return ""


# -- broadcast_state ------------------------------------------------------------------------------------------

PARAMETERS, BUFFERS = "rank 0's parameters on every rank", "buffers and frozen parameters, too"


def broadcast_cases(rng: random.Random) -> list[Case]:
    def case(name: str, ranks: int, spec: tuple, judgement: str, late: bool = False, hidden: bool = False) -> Case:
        seed = rng.getrandbits(40)
        inputs = [{"spec": spec, "seed": seed + 100 * rank} for rank in range(ranks)]
        for rank, one in enumerate(inputs):
            one["sleep_seconds"] = 0.04 * (ranks - 1 - rank) if late else 0.0
        return Case(name, inputs, (judgement,), hidden=hidden)

    return [
        case("4 ranks", 4, ("layers", 3), PARAMETERS),
        case("3 ranks, rank 0 comes last", 3, ("layers", 5, "float32"), PARAMETERS, late=True),
        case("1 rank", 1, ("layers", 3), PARAMETERS),
        case("3 ranks, three dtypes", 3, ("mixed", 3), PARAMETERS),
        case("4 ranks, a weight under two names", 4, ("tied", 3), PARAMETERS),
        case("4 ranks, buffers", 4, ("buffers", 3), BUFFERS),
        case("3 ranks, frozen layers", 3, ("frozen", 2), BUFFERS),
        case("2 ranks, other sizes", 2, ("many layers", rng.randint(2, 6)), PARAMETERS, hidden=True),
        case(
            "3 ranks, other buffers, rank 0 comes last", 3, ("buffers", 7, "float32"), BUFFERS, late=True, hidden=True
        ),
    ]


def _broadcast(case: Case, seen: Observation) -> str | None:
    starts = [state_of(make_model(inputs["spec"], inputs["seed"])) for inputs in case.inputs]
    problem = wrong_start(case, starts, [result["state"] for result in seen.results], never_waited(seen))
    if problem:
        return problem
    for rank, result in enumerate(seen.results):
        if not result["kept"]:
            return f"On rank {rank} `requires_grad` of a parameter has changed; only values are to be overwritten."
        for name, value in starts[0].items():
            if not torch.equal(result["through"][name], value):
                return (
                    f"Rank {rank} has a new tensor for `{name}`, and who held the old one sees old values: overwrite "
                    "it in place (`dist.broadcast` does, or `copy_`)."
                )
    return None


def wrong_start(case: Case, starts: list[dict[str, Tensor]], states: list[dict[str, Any]], known: str) -> str | None:
    """A sentence if a rank's parameters and buffers, by name, are not those of rank 0; ``starts`` are from before."""
    persistent = make_model(case.inputs[0]["spec"], 0)
    trained = {name for name, parameter in persistent.named_parameters() if parameter.requires_grad}
    parameters = {name for name, _ in persistent.named_parameters()}
    for name, want in starts[0].items():
        if any(name not in state for state in states):
            return f"`{name}` is no longer in the model: overwrite values, do not replace tensors."
        cause = ""
        if name in parameters - trained:
            cause = "It is frozen (`requires_grad` is False); it must be the same on all ranks all the same."
        elif name not in parameters and name not in persistent.state_dict():
            cause = "It is a buffer that is in no state dict: `model.buffers()` has it."
        elif name not in parameters:
            cause = "It is a buffer: `model.buffers()` has them, and they are not among the parameters."
        got = [state[name] for state in states]
        problem = compare.explain(
            [want] * case.ranks,
            got,
            [start[name] for start in starts],
            what=f"holds in `{name}`",
            unchanged_cause=cause,
            known_cause=known or _mean_start(got, [start[name] for start in starts]),
            hidden=case.hidden,
        )
        if problem:
            return problem
    return None


def _mean_start(got: list[Any], starts: list[Tensor]) -> str:
    total = sum(start.double() for start in starts)
    for factor, word in ((1, "sum"), (1 / len(starts), "mean")):
        if len(starts) > 1 and all((have.double() - total * factor).abs().max() < 1e-2 for have in got):
            return f"That is the {word} over the ranks; rank 0's values were asked for."
    return ""


BROADCAST_STATE = Exercise(
    id="broadcast_state",
    lesson=LESSON,
    names=("broadcast_state",),
    judgements=(Judgement(PARAMETERS, 1, _broadcast), Judgement(BUFFERS, 1, _broadcast)),
    cases=broadcast_cases,
    drive=drive_broadcast_state,
)

# -- average_gradients ----------------------------------------------------------------------------------------

MEAN, MISSING, ANY = "the mean over the ranks", "parameters without a gradient on some rank", "late ranks, other dtypes"
F64, F32, BF16 = torch.float64, torch.float32, torch.bfloat16


def average_cases(rng: random.Random) -> list[Case]:
    generator = torch_generator(rng)

    def drawn(shape: tuple[int, ...], dtype: torch.dtype) -> Tensor:
        return (torch.randn(shape, generator=generator, dtype=F64) + 0.5).to(dtype)

    def case(name: str, ranks: int, shapes: list, judgement: str, *, none: dict[int, tuple] | None = None, frozen=(),
             dtypes=(F64,), late=False, tied=False, hidden=False) -> Case:  # fmt: skip
        """``none``: by parameter, the ranks on which it has no gradient."""
        none = none or {}
        inputs = []
        for rank in range(ranks):
            kinds = [dtypes[number % len(dtypes)] for number in range(len(shapes))]
            weights = [drawn(shape, dtype) for shape, dtype in zip(shapes, kinds, strict=True)]
            gradients = [drawn(shape, dtype) for shape, dtype in zip(shapes, kinds, strict=True)]
            for number in range(len(shapes)):
                if rank in none.get(number, ()) or number in frozen:
                    gradients[number] = None
            sleep = 0.04 * rank if late else 0.0
            one = {"weights": weights, "gradients": gradients, "frozen": list(frozen), "tied": tied}
            inputs.append({**one, "sleep_seconds": sleep})
        return Case(name, inputs, (judgement,), hidden=hidden)

    odd = [(rng.randint(1, 5), rng.randint(1, 5)) for _ in range(5)]
    return [
        case("4 ranks", 4, [(3, 2), (5,)], MEAN),
        case("3 ranks", 3, [(3, 2), (), (5,)], MEAN),
        case("1 rank", 1, [(3, 2), (5,)], MEAN),
        case("4 ranks, each lacks one of two", 4, [(2, 3), (2, 3)], MISSING, none={0: (0, 2), 1: (1, 3)}),
        case("3 ranks, one layer on rank 1 alone", 3, [(4,), (2, 3), (3,)], MISSING, none={1: (0, 2)}),
        case("one layer on no rank, one frozen", 3, [(4,), (2, 3), (3,)], MISSING, none={1: (0, 1, 2)}, frozen=[2]),
        case("4 ranks, late", 4, [(6,), (40, 40), (3,)], ANY, late=True),
        case("3 ranks, three dtypes", 3, [(4,), (3, 2), (5,), (2, 2)], ANY, dtypes=(F64, F32, BF16)),
        case("3 ranks, a weight under two names", 3, [(4,), (3, 2)], ANY, tied=True),
        case("4 ranks, other shapes", 4, odd, MEAN, hidden=True),
        case("4 ranks, other layers missing", 4, odd, MISSING, none={0: (3,), 2: (0, 1, 2), 4: (1, 2)}, hidden=True),
        case("3 ranks, late, two dtypes", 3, odd, ANY, dtypes=(F32, F64), late=True, none={1: (1,)}, hidden=True),
    ]  # fmt: skip


def _average(case: Case, seen: Observation) -> str | None:
    for rank, result in enumerate(seen.results):
        for number, weight in enumerate(case.inputs[rank]["weights"]):
            if not torch.equal(result["weights"][number], weight):
                return (
                    f"On rank {rank} the weights of parameter {number} have changed: average `.grad`, not the weights."
                )
    for number in range(len(case.inputs[0]["weights"])):
        given = [inputs["gradients"][number] for inputs in case.inputs]
        got = [result["gradients"][number] for result in seen.results]
        if problem := wrong_mean(given, got, f"p{number}", never_waited(seen), case.hidden):
            return problem
    return None


def wrong_mean(given: list[Tensor | None], got: list[Any], name: str, known: str, hidden: bool) -> str | None:
    """A sentence if a parameter's gradients, by rank, are not the mean of the given ones; None counts as zero."""
    some = [gradient for gradient in given if gradient is not None]
    if not some:
        wrong = [rank for rank, have in enumerate(got) if isinstance(have, Tensor) and have.any()]
        return f"`{name}` has no gradient on any rank; rank {wrong[0]} made one up that is not zero." if wrong else None
    ranks = len(given)
    for rank, have in enumerate(got):
        if have is None:
            return (
                f"On rank {rank} `{name}.grad` is None, though other ranks have one. There it counts as zero: fill in "
                "zeros before the all-reduce. A rank that skips the call pairs its next one wrongly with the others', "
                "and it needs the mean itself, or its weights go another way."
            )
    local = [torch.zeros_like(some[0]) if gradient is None else gradient for gradient in given]
    mean = sum(gradient.double() for gradient in local) / ranks
    slack = [compare.summation_slack(local) * 2 + 1e-12] * ranks
    cause = ""
    if len(some) < ranks:
        by_some = mean * ranks / len(some)
        if all(((have.double() - by_some).abs() <= slack[0] * ranks).all() for have in got if have.shape == mean.shape):
            cause = (
                "It was divided by the number of ranks that have this gradient. The divisor is the world size: where a "
                "gradient is missing, it counts as zero."
            )
        else:
            cause = (
                "Where a gradient is None, some ranks skip the collective, and the ranks' calls pair up wrongly: every "
                "rank makes the same calls, with zeros where it has nothing."
            )
    want = mean.to(some[0].dtype)
    if not compare.explain([want] * ranks, got, slack=slack):
        return None
    plain = compare.explain(
        [want] * ranks, got, local, what=f"holds in `{name}.grad`", slack=slack, reduction="mean", known_cause=known,
        hidden=hidden,
    )  # fmt: skip
    scaled = "never divided" in plain or "divided by the world size twice" in plain
    if not cause or scaled or known:
        return plain
    return compare.explain(
        [want] * ranks, got, what=f"holds in `{name}.grad`", slack=slack, known_cause=cause, hidden=hidden
    )


AVERAGE_GRADIENTS = Exercise(
    id="average_gradients",
    lesson=LESSON,
    names=("average_gradients",),
    judgements=(Judgement(MEAN, 1, _average), Judgement(MISSING, 1, _average), Judgement(ANY, 1, _average)),
    cases=average_cases,
    drive=drive_average,
)
