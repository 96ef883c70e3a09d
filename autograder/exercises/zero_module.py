"""Exercise zero3_module: weights that are whole only while they are used."""

from __future__ import annotations

import random
from typing import Any

import torch
from torch import Tensor

from autograder import compare
from autograder.exercise import Case, Exercise, Judgement
from autograder.exercises.zero_memory import kept, most_kept, peak
from autograder.exercises.zero_oracle import HABITS
from autograder.exercises.zero_ranks import drive_zero3, make_blocks
from autograder.exercises.zero_shards import cut_alike, joined, missing_blocks, near, size_of, units_of
from autograder.exercises.zero_training import Drawer, Training, habit_of, slack_for, teams_of, train, wrong_weights
from rankzero.observe.observation import Observation

LESSON = "06_zero"

FORWARD = "steps 1 to 3: cut, gathered, and forward as on one process"
GRADIENTS = "steps 4 and 5: each rank's shards of the mean gradients"
TRAINING = "step 6: training equals AdamW on one process"
ANY_BLOCK = "any blocks: checkpointed, without weights, of unequal size, integer input"
KEPT = "between uses a rank holds its shards only"
PEAK = "whole weights of few blocks at once"

PLAIN = (("linear", 4, 5), ("tanh",), ("linear", 5, 5), ("tanh",), ("linear", 5, 3))
MIXED = (("embedding", 7, 5), ("scaled", 5), ("relu in place",), ("linear", 5, 9), ("checkpointed", 9))
OTHER = (("embedding", 5, 6), ("tied", 6), ("tanh",), ("scaled", 6), ("linear", 6, 1))
#: Blocks of the memory cases are wide enough that activations hardly count.
WIDTH = 96


def zero3_cases(rng: random.Random) -> list[Case]:
    draw = Drawer(rng)

    def case(name: str, ranks: int, spec, judgements: tuple[str, ...], do: str = "train", **more) -> Case:
        return draw.case(name, ranks, spec, judgements, do=do, **more)

    def memory(name: str, ranks: int, spec, hidden: bool = False) -> Case:
        more = {"steps": 2, "dtype": torch.float32, "most": most_kept(spec, ranks), "hidden": hidden}
        return case(name, ranks, spec, (KEPT, PEAK), "memory", **more)

    settings = {"lr": 0.01, "betas": (0.8, 0.95), "eps": 1e-3, "weight_decay": 0.2}
    return [
        case("4 ranks, forward", 4, PLAIN, (FORWARD,), "forward", steps=2),
        case("3 ranks, forward", 3, PLAIN, (FORWARD,), "forward"),
        case("4 ranks, one backward", 4, PLAIN, (GRADIENTS,), "backward"),
        case("3 ranks, two backwards add up", 3, PLAIN, (GRADIENTS,), "backward", micro_batches=2),
        case("1 rank", 1, PLAIN, (FORWARD, GRADIENTS), "backward"),
        case("4 ranks, 5 steps", 4, PLAIN, (TRAINING,), steps=5, options=settings),
        case("3 ranks, 5 steps of two backwards", 3, PLAIN, (TRAINING,), steps=5, micro_batches=2),
        case("3 ranks, blocks of every kind", 3, MIXED, (ANY_BLOCK,), steps=2, options=settings),
        case("4 ranks, checkpointed blocks", 4, [("checkpointed", 6)] * 3, (ANY_BLOCK,), steps=2, micro_batches=2),
        case("4 ranks in two groups of two", 4, PLAIN, (ANY_BLOCK,), steps=2, members=[[0, 2], [1, 3]]),
        memory("4 ranks, 8 equal blocks, watched", 4, [("layer", WIDTH)] * 8),
        case("2 ranks, forward and backward", 2, MIXED[1:], (FORWARD, GRADIENTS), "backward", hidden=True),
        case("3 ranks, 6 steps", 3, PLAIN, (TRAINING,), steps=6, options=settings, hidden=True),
        case("3 ranks, other blocks", 3, OTHER, (ANY_BLOCK,), steps=2, micro_batches=2, hidden=True),
        case(
            "4 ranks, groups of three and one", 4, PLAIN, (ANY_BLOCK,), steps=2, members=[[1, 2, 3], [0]], hidden=True
        ),
        memory("2 ranks, 10 equal blocks, watched", 2, [("layer", WIDTH)] * 10, hidden=True),
        memory("4 ranks, 8 checkpointed blocks, watched", 4, [("checkpointed", 64)] * 8, hidden=True),
    ]


# -- values ---------------------------------------------------------------------------------------------------


def _forward(case: Case, seen: Observation) -> str | None:
    for team in teams_of(case):
        training = train(case, team)
        if problem := _wrong_state(case, seen, team, training.states[0], "first", "before any step", training):
            return problem
        if problem := _wrong_outputs(case, seen, team, training, 0):
            return problem
    return None


def _wrong_outputs(case: Case, seen: Observation, team: list[int], training: Training, step: int) -> str | None:
    count = len(case.inputs[team[0]]["steps"][0])
    for number in range(step * count, (step + 1) * count):
        want = [training.outputs[rank][number] for rank in team]
        got = [seen.results[rank]["outputs"][number] for rank in team]
        problem = compare.explain(
            want,
            got,
            what=f"gets from `forward` in step {step + 1}",
            numbers=team,
            slack=[slack_for(one) for one in want],
            hidden=case.hidden,
            known_cause=_outputs_cause(case, team, got, number) if step and not all(map(near, got, want)) else "",
        )
        if problem:
            return problem
    return None


def _outputs_cause(case: Case, team: list[int], got: list[Any], number: int) -> str:
    """The likeliest cause of wrong outputs after the first step."""
    if all(near(have, _stale(case, team, rank, number)) for rank, have in zip(team, got, strict=True)):
        return "That is what the first step's weights give: gathered weights are kept and used again, or never updated."
    for habit in HABITS:
        other = train(case, team, habit)
        if all(near(have, other.outputs[rank][number]) for rank, have in zip(team, got, strict=True)):
            return habit.cause
    return ""


def _stale(case: Case, team: list[int], rank: int, number: int) -> Tensor:
    """What the very first weights make of a rank's micro-batch."""
    first = case.inputs[rank]
    batches = [batch for step in first["steps"] for batch in step]
    with torch.no_grad():
        return make_blocks(first["spec"], first["seed"], first["dtype"])(batches[number][0])


def _wrong_state(
    case: Case, seen: Observation, team: list[int], want: dict[str, Tensor], which: str, when: str, training: Training
) -> str | None:
    for rank in team:
        got = seen.results[rank][which]
        if not isinstance(got, dict):
            return (
                f"On rank {rank} `full_state_dict()` returned {compare.describe(got)}; a dict was expected on every "
                "rank."
            )
        missing, more = sorted(set(want) - set(got)), sorted(set(got) - set(want))
        if missing or more:
            odd = f"lacks {missing[0]!r}" if missing else f"has {more[0]!r} besides"
            return (
                f"On rank {rank} `full_state_dict()` {odd}; its keys are those of `blocks.state_dict()`, "
                f"such as {next(iter(want))!r}."
            )
    got = [[seen.results[rank][which][key] for key in want] for rank in team]
    names = [f"`full_state_dict()[{key!r}]`" for key in want]
    cause = ""
    if which == "last" and all(
        isinstance(one, Tensor) and one.shape == right.shape for one, right in zip(got[0], want.values(), strict=True)
    ):
        named = [name for name, _ in training.blocks.named_parameters()]
        weights = [seen.results[team[0]][which][name] for name in named]
        if not all(
            compare.close(one, want[name], slack_for(want[name])) for one, name in zip(weights, named, strict=True)
        ):
            cause = habit_of(case, team, weights, -1)
    return wrong_weights(got, list(want.values()), names, team, f"has {when}, in {{}},", case.hidden, cause)


def _gradients(case: Case, seen: Observation) -> str | None:
    for team in teams_of(case):
        training = train(case, team)
        problem = _wrong_outputs(case, seen, team, training, 0) or _wrong_shards(case, seen, team, training, 0)
        if problem:
            return problem
    return None


def _wrong_shards(case: Case, seen: Observation, team: list[int], training: Training, step: int) -> str | None:
    lists = [seen.results[rank]["shards"][step] for rank in team]
    for rank, shards in zip(team, lists, strict=True):
        if not isinstance(shards, list):
            return f"On rank {rank} `gradient_shards()` returned {compare.describe(shards)}; a list was expected."
    units = units_of(training, lists)
    if units is None:
        empty = [place for place, shard in enumerate(lists[0]) if not isinstance(shard, Tensor)]
        cause = (
            f" Shard {empty[0]} is {compare.describe(lists[0][empty[0]])}: was its block never reduced?"
            if empty
            else ""
        )
        return (
            f"On rank {team[0]} `gradient_shards()` returned {len(lists[0])} tensors, of "
            f"{[size_of(one) for one in lists[0]]} elements; expected is one for each block that has "
            f"weights: ⌈N / W⌉ elements of its flattened gradients, padded with zeros.{cause}"
        )
    where = "" if step == 0 else f" in step {step + 1}"

    def cut(gradients: list[Tensor]) -> list[Tensor]:
        return cut_alike(gradients, units, lists)

    want, n = cut(training.gradients[step]), len(team)
    got = [joined(shards, want[0]) for shards in lists]
    local = [cut(training.local[rank][step])[place] for place, rank in enumerate(team)]
    cause = ""
    if not all(map(near, got, want)):
        steps_so_far = [sum(parts) for parts in zip(*training.gradients[: step + 1], strict=True)]
        known = [(training.last[step], "Only the last backward counts: add to the shards, do not overwrite them.")]
        if step:
            known.append(
                (steps_so_far, "The gradients of the steps before are in it, too: `zero_grad()` must clear them.")
            )
        doubled = [2 * one for one in training.gradients[step]]
        known.append((doubled, "Everything is counted twice: are gradients reduced once too often?"))
        if case.inputs[0]["steps"] and len(case.inputs[0]["steps"][0]) > 1:
            first = [one - other for one, other in zip(training.gradients[step], training.last[step], strict=True)]
            known.append((first, "Only the first backward counts."))
        cause = next((words for gradients, words in known if all(map(near, got, cut(gradients)))), "")
        cause = cause or missing_blocks(got, want, units, lists)
    return compare.explain(
        want,
        got,
        local,
        what=f"holds as `gradient_shards()`{where}, put one after the other,",
        numbers=team,
        ranks=n,
        slack=[slack_for(one) * 10 for one in want],
        reduction="mean",
        hidden=case.hidden,
        known_cause=cause,
    )


def _training(case: Case, seen: Observation) -> str | None:
    for team in teams_of(case):
        training = train(case, team)
        for step in range(len(training.weights)):
            problem = _wrong_outputs(case, seen, team, training, step) or _wrong_shards(
                case, seen, team, training, step
            )
            if problem:
                return problem
        if problem := _wrong_state(case, seen, team, training.states[1], "last", "after the last step", training):
            return problem
    return None


ZERO3 = Exercise(
    id="zero3_module",
    lesson=LESSON,
    names=("Zero3",),
    judgements=(
        Judgement(FORWARD, 0.5, _forward),
        Judgement(GRADIENTS, 1, _gradients),
        Judgement(TRAINING, 1, _training),
        Judgement(ANY_BLOCK, 0.5, _training),
        Judgement(KEPT, 1, kept, how=True),
        Judgement(PEAK, 1, peak, how=True),
    ),
    cases=zero3_cases,
    drive=drive_zero3,
)
