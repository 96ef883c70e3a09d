"""Exercise hand_ddp: gradients and weights as on one process, with anything that models bring."""

from __future__ import annotations

import random
from typing import Any

import torch
from torch import Tensor

from autograder import compare
from autograder.exercise import Case, Exercise, Judgement
from autograder.exercises.ddp_overlap import COUNT, OVERLAP, count, overlap, sent_in_no_sync, sent_too_early
from autograder.exercises.ddp_ranks import drive_hand_ddp, make_model, state_of
from autograder.exercises.ddp_replicas import never_waited, wrong_start
from autograder.exercises.ddp_training import (
    BACKWARD_INSIDE,
    FORWARD_INSIDE,
    INSIDE,
    SYNC,
    Drawer,
    Training,
    mean_of,
    train,
)
from rankzero.observe.observation import Observation

LESSON = "05_ddp"

GRADIENTS = "gradients as one process has them for the whole batch"
START = "all ranks start as rank 0"
UNUSED = "parameters without a gradient"
ACCUMULATION = "no_sync: micro-batches add up first"
MODELS = "tied weights, several dtypes, frozen layers, keywords"

#: Of a bucket in the cases with layers of 24 × 24 in float64: one layer, or two.
LAYER = 8 * 24 * 25


def hand_ddp_cases(rng: random.Random) -> list[Case]:
    draw = Drawer(rng).case
    how = (GRADIENTS, OVERLAP, COUNT)
    # By step, rank and micro-batch: which branch is taken.
    halves = [[[1], [-1], [1], [-1]], [[-1], [-1], [1], [-1]], [[1], [1], [1], [1]]]
    turns = [[[-1], [1], [-1]], [[1], [-1], [1]], [[-1], [-1], [-1]]]
    early = [[[1, -1]] * 3, [[-1, 1]] * 3]
    early_on_one = [[[1, 1], [-1, 1], [1, 1]], [[-1, -1], [1, -1], [-1, -1]]]
    one_by_one = 8 * 5 * 4
    return [
        draw("4 ranks, 3 steps", 4, ("layers", 24), how, steps=3, cap_bytes=LAYER),
        draw("3 ranks, late", 3, ("layers", 24), how, steps=3, cap_bytes=2 * LAYER, late=True, to_none=False),
        draw("1 rank", 1, ("layers", 4), (GRADIENTS,), cap_bytes=100),
        draw("4 ranks, the last bucket is not full", 4, ("many layers", 24), how, cap_bytes=4 * LAYER),
        draw("3 ranks, one bucket takes all", 3, ("layers", 4), (GRADIENTS, COUNT)),
        draw("4 ranks, other weights on each", 4, ("layers", 3), (START,), alike=False),
        draw("3 ranks, buffers", 3, ("buffers", 4), (START,), alike=False),
        draw("3 ranks, two layers are never used", 3, ("idle", 5), (UNUSED, COUNT), cap_bytes=8 * 30),
        draw("4 ranks take different branches", 4, ("branches", 4), (UNUSED,), steps=3, signs=halves,
             cap_bytes=one_by_one),
        draw("3 ranks take other branches, one bucket", 3, ("branches", 5), (UNUSED,), steps=3, signs=turns),
        draw("4 ranks, 3 micro-batches", 4, ("layers", 24), (ACCUMULATION, OVERLAP, COUNT),
             modes=(INSIDE, INSIDE, SYNC), cap_bytes=LAYER),
        draw("only backward inside no_sync", 3, ("layers", 24), (ACCUMULATION, COUNT),
             modes=(BACKWARD_INSIDE, BACKWARD_INSIDE, SYNC), cap_bytes=LAYER),
        draw("the last forward inside no_sync, its backward outside", 3, ("layers", 24), (ACCUMULATION, OVERLAP, COUNT),
             modes=(INSIDE, FORWARD_INSIDE), cap_bytes=LAYER),
        draw("a branch that only the first micro-batch takes", 3, ("branches", 4), (ACCUMULATION,),
             modes=(INSIDE, SYNC), signs=early, cap_bytes=one_by_one),
        draw("a weight under two names", 3, ("tied", 24), (MODELS, OVERLAP, COUNT), cap_bytes=LAYER),
        draw("three dtypes", 3, ("mixed", 6), (MODELS, COUNT), steps=1, cap_bytes=8 * 6 * 7 + 40),
        draw("frozen layers", 3, ("frozen", 4), (MODELS,), cap_bytes=8 * 20),
        draw("a keyword, and a tuple returned", 3, ("gain", 4), (MODELS,), keywords={"gain": 2.0}),
        draw("2 ranks, other sizes", 2, ("many layers", rng.randint(18, 30)), how, cap_bytes=LAYER, hidden=True),
        draw("float32, zeroed in place", 3, ("layers", 24, "float32"), how, steps=3, cap_bytes=LAYER // 2,
             to_none=False, late=True, hidden=True),
        draw("branches, zeroed in place", 3, ("branches", 6), (UNUSED,), steps=3, signs=turns, cap_bytes=8 * 6 * 6,
             to_none=False, hidden=True),
        draw("one rank takes a branch in no_sync alone", 3, ("branches", 4), (ACCUMULATION,), modes=(INSIDE, SYNC),
             signs=early_on_one, cap_bytes=one_by_one, hidden=True),
        draw("4 micro-batches, late", 3, ("many layers", 24), (ACCUMULATION, OVERLAP, COUNT), late=True,
             modes=(INSIDE, BACKWARD_INSIDE, INSIDE, SYNC), cap_bytes=2 * LAYER, hidden=True),
        draw("tied, one bucket, zeroed in place", 4, ("tied", 5), (MODELS,), to_none=False, hidden=True),
    ]  # fmt: skip


def _start(case: Case, seen: Observation) -> str | None:
    starts = [state_of(make_model(inputs["spec"], inputs["seed"])) for inputs in case.inputs]
    problem = wrong_start(case, starts, [result["start"] for result in seen.results], never_waited(seen))
    if problem:
        return f"After the constructor: {problem}"
    return _training(case, seen)


def _training(case: Case, seen: Observation) -> str | None:
    training = train(case)
    names = [name for name, _ in make_model(case.inputs[0]["spec"], 0).named_parameters()]
    if problem := _wrong_out(case, seen, training):
        return problem
    for step in range(len(training.gradients)):
        for place, name in enumerate(names):
            got = [result["steps"][step]["gradients"][place] for result in seen.results]
            if problem := _wrong_gradient(case, seen, step, place, name, got):
                return problem
    for place, name in enumerate(names):
        want = training.weights[place]
        got = [result["end"][place] for result in seen.results]
        slack = [want.double().abs() * _coarseness(want) + _coarseness(want)] * case.ranks
        what = f"holds in `{name}`, after the last step,"
        cause = "The gradients were right: does a hook, or `finish()`, change weights?"
        if problem := compare.explain([want] * case.ranks, got, slack=slack, what=what, known_cause=cause):
            return problem
    return None


def _wrong_out(case: Case, seen: Observation, training: Training) -> str | None:
    want = training.out
    got = [result["out"][0] for result in seen.results]
    several = bool(case.inputs[0]["keywords"])
    if any(len(result["out"]) != 1 + several for result in seen.results):
        return "`forward` must return what the module returns: here a tensor and a dict."
    slack = [one.double().abs() * _coarseness(one) + _coarseness(one) for one in want]
    cause = "`forward` must hand everything on to the module, and return what that returns."
    return compare.explain(want, got, slack=slack, what="got from `forward`", known_cause=cause, hidden=case.hidden)


def _wrong_gradient(case: Case, seen: Observation, step: int, place: int, name: str, got: list[Any]) -> str | None:
    training = train(case)
    want, local, last = training.gradients[step][place], training.local[step][place], training.last[step][place]
    where = f"`{name}.grad` of step {step + 1}"
    if want is None:
        wrong = [rank for rank, have in enumerate(got) if isinstance(have, Tensor) and have.any()]
        return f"Rank {wrong[0]} holds a gradient in {where}, which nobody uses, or which is frozen." if wrong else None
    for rank, have in enumerate(got):
        if have is None:
            return f"Rank {rank} holds None in {where} after `finish()`. {_none_cause(local[rank], last[rank])}"
    given = [torch.zeros_like(want) if gradient is None else gradient for gradient in local]
    slack = [sum(one.double().abs() for one in given) * _coarseness(want) + _coarseness(want) / 10] * case.ranks

    def explained(cause: str) -> str | None:
        return compare.explain(
            [want] * case.ranks,
            got,
            given,
            what=f"holds in {where}",
            slack=slack,
            reduction="mean",
            accumulation=len(case.inputs[0]["modes"]),
            known_cause=cause,
            hidden=case.hidden,
        )

    problem = explained("")
    if problem and (cause := _cause(case, seen, step, place, name, got, slack[0])):
        return explained(cause)
    unclear = problem and (problem.endswith(("was expected.", "wrong values.")) or "end with different" in problem)
    return explained(_guess(step)) if unclear else problem


def _coarseness(tensor: Tensor) -> float:
    """How far sums in another order, and some steps on, may lead away."""
    return {torch.float64: 1e-11, torch.float32: 2e-5, torch.bfloat16: 6e-2}[tensor.dtype]


def _none_cause(local: Tensor | None, last: Tensor | None) -> str:
    if local is None:
        return "This rank did not use the parameter, but others did: it needs their mean as well."
    if last is None:
        return "Its gradient came in an earlier micro-batch: it counts, too."
    return "It had one after backward: leave the mean there."


def _cause(case: Case, seen: Observation, step: int, place: int, name: str, got: list[Any], slack: Tensor) -> str:
    """The cause of a wrong gradient, where it is known beyond what the values of one parameter tell."""
    training = train(case)
    want, local, last = training.gradients[step][place], training.local[step][place], training.last[step][place]

    def all_are(others: list[Tensor | None]) -> bool:
        return all(
            isinstance(have, Tensor)
            and compare.close(have, torch.zeros_like(want) if other is None else other, slack * 2)
            for have, other in zip(got, others, strict=True)
        )

    for rank, result in enumerate(seen.results):
        messages, now = seen.of_rank(rank), result["steps"][step]
        if now["moved"]:
            return "The weights have changed: a hook gets the parameter, and its `.grad` is to be averaged."
        if cause := sent_in_no_sync(case, messages, now):
            return f"There was {cause}"
        if cause := sent_too_early(case, messages, now):
            return cause
    if cause := never_waited(seen):
        return cause
    if case.inputs[0]["spec"][0] == "tied" and place == 0:
        return "The weight under two names is treated twice: walk `module.parameters()`, which has it once."
    if step and all_are([_total(training, step, place)] * len(got)):
        return "Gradients of earlier steps are still in it: what `zero_grad` clears must not come back from a bucket."
    if ACCUMULATION in case.judgements and (cause := _accumulation_cause(case, all_are, local, last)):
        return cause
    if all_are(local) and any(gradient is None for gradient in local):
        return (
            "Each rank has its own: this gradient never travelled, or only a part of the ranks' did. A parameter that "
            "one rank uses must travel on all."
        )
    if all_are(local) and case.ranks > 1:
        right = [
            other
            for other, gradient in enumerate(training.gradients[step])
            if gradient is not None
            and all(
                isinstance(result["steps"][step]["gradients"][other], Tensor)
                and compare.close(result["steps"][step]["gradients"][other], gradient, 1e-6)
                for result in seen.results
            )
        ]
        if right:
            which = "Only the bucket of this one" if step == 0 else f"It went well until step {step}; in this one it"
            return (
                f"{which} never travelled: is the last bucket, which is not full, forgotten, or a count not set back?"
            )
    if UNUSED in case.judgements and not _scaled(got, want):
        return (
            "Ranks that use other parameters must make the same calls in the same order: a bucket waits for the one "
            "before it, and what never becomes ready is sent in `finish()`, with zeros."
        )
    return ""


def _accumulation_cause(case: Case, all_are: Any, local: list, last: list) -> str:
    if all_are([mean_of(last)] * len(local)):
        return "That is the last micro-batch alone: gradients from `no_sync` must add up and be sent with the last one."
    if all_are(local):
        if all(gradient is None for gradient in last):
            return "It comes from a `no_sync` micro-batch alone, and was never sent: `finish()` must send it, too."
        if FORWARD_INSIDE in case.inputs[0]["modes"]:
            return (
                "It was never sent: its forward ran inside `no_sync`, but its backward outside. What counts is where "
                "backward runs: ask in the hook, not in `forward`."
            )
        return "It was never sent: does `no_sync` end, and are counts right after it?"
    if all(gradient is None for gradient in last):
        return "It comes from a `no_sync` micro-batch alone: `finish()` must send it with what is left."
    return ""


def _guess(step: int) -> str:
    if step:
        return "Earlier steps were right: what has to be set back after a step, counts, handles, flat tensors?"
    return "Is a flat tensor changed, or read, between the all-reduce and the end of its `wait()`?"


def _total(training: Training, step: int, place: int) -> Tensor | None:
    """The mean gradients of all steps up to this one, added up."""
    parts = [training.gradients[one][place] for one in range(step + 1)]
    return sum(part for part in parts if part is not None)


def _scaled(got: list[Any], want: Tensor) -> bool:
    """Whether the ranks' values are the right ones times one factor."""
    ratio = got[0].double().sum() / want.double().sum()
    return all((have.double() - ratio * want.double()).abs().max() < 1e-6 for have in got)


HAND_DDP = Exercise(
    id="hand_ddp",
    lesson=LESSON,
    names=("HandDDP",),
    judgements=(
        Judgement(GRADIENTS, 2, _training),
        Judgement(START, 1, _start),
        Judgement(UNUSED, 1, _training),
        Judgement(ACCUMULATION, 1, _training),
        Judgement(MODELS, 1, _training),
        Judgement(OVERLAP, 1, overlap, how=True),
        Judgement(COUNT, 1, count, how=True),
    ),
    cases=hand_ddp_cases,
    drive=drive_hand_ddp,
)
