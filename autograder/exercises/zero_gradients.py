"""Exercises zero2_gradients and clip_sharded: sharded gradients, and their common norm."""

from __future__ import annotations

import random
from typing import Any

import torch
from torch import Tensor

from autograder import compare
from autograder.exercise import Case, Exercise, Judgement
from autograder.exercises.zero_pieces import flat_of
from autograder.exercises.zero_ranks import drive_zero2
from autograder.exercises.zero_training import Drawer, Training, habit_of, slack_for, teams_of, train, wrong_weights
from rankzero.observe.observation import Observation

LESSON = "06_zero"

# -- zero2_gradients ------------------------------------------------------------------------------------------

SHARD = "step 2: each rank's shard of the mean gradient"
TRAINING = "step 3: training equals AdamW on one process"
BYTES = "step 2: the bytes of a reduce-scatter"
KEPT = "steps 2 and 3: a rank keeps only shards"

SMALL = (("linear", 4, 5), ("tanh",), ("linear", 5, 3))


def zero2_cases(rng: random.Random) -> list[Case]:
    draw = Drawer(rng)

    def case(name, ranks, spec, judgements, train=True, **more) -> Case:
        watched = KEPT in judgements
        most = most_held(sum(width * width + width for _, width in spec), ranks) if watched else 0
        return draw.case(name, ranks, spec, judgements, train=train, most=most, **more)

    wide = [("layer", 36)] * 5
    f32 = torch.float32
    settings = {"lr": 0.01, "betas": (0.8, 0.95), "eps": 1e-3, "weight_decay": 0.2}
    return [
        case("4 ranks, one backward", 4, SMALL, (SHARD,), train=False),
        case("3 ranks, two backwards add up", 3, SMALL, (SHARD,), train=False, micro_batches=2),
        case("4 ranks, unused parameters", 4, [("sometimes", 5), ("idle", 5)], (SHARD,), train=False),
        case("2 ranks", 2, SMALL, (SHARD,), train=False),
        case("1 rank", 1, SMALL, (SHARD,), train=False),
        case("4 ranks, 5 steps", 4, SMALL, (TRAINING,), steps=5, options=settings),
        case("3 ranks, 5 steps of two backwards", 3, SMALL, (TRAINING,), steps=5, micro_batches=2),
        case("4 ranks, five layers", 4, wide, (SHARD, BYTES), train=False, dtype=f32, micro_batches=2),
        case(
            "4 ranks, five layers, 2 steps",
            4,
            wide,
            (TRAINING, KEPT),
            steps=2,
            options={"eps": 1e-3},
            dtype=f32,
        ),
        case("4 ranks in two groups of two", 4, SMALL, (TRAINING,), steps=2, members=[[0, 2], [1, 3]]),
        case(
            "3 ranks, three backwards, tied weights",
            3,
            [("tied", 5), ("idle", 5)],
            (SHARD,),
            train=False,
            micro_batches=3,
            hidden=True,
        ),
        case("4 ranks, fewer elements than ranks", 4, [("linear", 1, 1)], (SHARD, TRAINING), steps=3, hidden=True),
        case(
            "3 ranks, 6 steps, other layers",
            3,
            [("embedding", 7, 5), ("scaled", 5), ("sometimes", 5), ("relu in place",), ("linear", 5, 2)],
            (TRAINING,),
            steps=6,
            options=settings,
            hidden=True,
        ),
        case("3 ranks, five layers", 3, wide, (SHARD, BYTES), train=False, dtype=f32, hidden=True),
        case(
            "4 ranks, four wider layers, 3 steps of two backwards",
            4,
            [("layer", 44)] * 4,
            (TRAINING, KEPT),
            steps=3,
            micro_batches=2,
            options={"eps": 1e-3},
            dtype=f32,
            hidden=True,
        ),
        case("4 ranks, groups of three and one", 4, SMALL, (TRAINING,), steps=3, members=[[1, 2, 3], [0]], hidden=True),
    ]


def _pieces(gradients: list[Tensor], ranks: int) -> list[Tensor]:
    return list(flat_of(gradients, ranks).view(ranks, -1))


def _shard(case: Case, seen: Observation) -> str | None:
    return next((problem for team in teams_of(case) if (problem := _wrong_shard(case, seen, team, 0))), None)


def _wrong_shard(case: Case, seen: Observation, team: list[int], step: int) -> str | None:
    training, n = train(case, team), len(team)
    want = _pieces(training.gradients[step], n)
    got = [seen.results[rank]["shards"][step] for rank in team]
    local = [_pieces(training.local[rank][step], n)[place] for place, rank in enumerate(team)]
    return compare.explain(
        want,
        got,
        local,
        what="holds as `gradient_shard()`" if step == 0 else f"holds as `gradient_shard()` in step {step + 1}",
        numbers=team,
        ranks=n,
        slack=[slack_for(one) * 10 for one in want],
        reduction="mean",
        hidden=case.hidden,
        shape_cause="A shard has ⌈N / W⌉ elements, the last one filled up with zeros.",
        known_cause=_shard_cause(got, local, training, step, n),
    )


def _shard_cause(got: list[Any], local: list[Tensor], training: Training, step: int, n: int) -> str:
    def matches(pieces: list[Tensor]) -> bool:
        return all(
            isinstance(have, Tensor) and compare.close(have, piece, slack_for(piece) * 10)
            for have, piece in zip(got, pieces, strict=True)
        )

    mean, last = training.gradients[step], training.last[step]
    if matches(_pieces(mean, n)):
        return ""
    first = [one - other for one, other in zip(mean, last, strict=True)]
    twice_the_first = [2 * one - other for one, other in zip(mean, last, strict=True)]
    so_far = [sum(parts) for parts in zip(*training.gradients[: step + 1], strict=True)]
    known = (
        (_pieces(last, n), "Only the last backward counts: add to the shard, do not overwrite it."),
        (_pieces(first, n), "The last backward does not count."),
        (
            _pieces(so_far, n),
            "The gradients of the steps before are still in it: `zero_grad()` must clear the shard, and nothing may "
            "stay in `.grad`.",
        ),
        (_pieces(twice_the_first, n), "What a backward leaves in `.grad` is reduced again by the next one."),
        ([_pieces(mean, n)[0]] * n, "Every rank holds the first shard; rank r holds elements [r·S, (r+1)·S)."),
        ([one / n for one in local], "That is the rank's own gradient, divided by n: nothing was exchanged."),
    )
    cause = next((words for pieces, words in known if n > 1 and matches(pieces)), "")
    if not cause and n != 4 and matches(_pieces([2 * one for one in mean], n)):
        return "Everything is counted twice: are gradients that stay in `.grad` reduced again?"
    return cause


def _training(case: Case, seen: Observation) -> str | None:
    for team in teams_of(case):
        training = train(case, team)
        names = [f"parameter {place}" for place in range(len(training.start))]
        for step, want in enumerate(training.weights):
            if problem := _wrong_shard(case, seen, team, step):
                return problem
            got = [seen.results[rank]["weights"][step] for rank in team]
            cause = _weights_cause(case, team, got, training, step)
            what = f"has, in {{}} after step {step + 1},"
            if problem := wrong_weights(got, want, names, team, what, case.hidden, cause):
                return problem
        for rank in team[1:]:
            last, first = seen.results[rank]["weights"][-1], seen.results[team[0]]["weights"][-1]
            if any(not torch.equal(one, other) for one, other in zip(last, first, strict=True)):
                return f"Ranks {team[0]} and {rank} end with weights that differ: all must hold the very same bits."
    return None


def _weights_cause(case: Case, team: list[int], got: list[list[Tensor]], training: Training, step: int) -> str:
    want = training.weights[step]
    if all(
        isinstance(have, Tensor) and have.shape == right.shape and compare.close(have, right, slack_for(right))
        for of_rank in got
        for have, right in zip(of_rank, want, strict=True)
    ):
        return ""
    before = training.weights[step - 1] if step else training.start
    kept = [
        torch.cat([(have == old).reshape(-1) for have, old in zip(of_rank, before, strict=True)]) for of_rank in got
    ]
    if len(team) > 1 and all(one.any() for one in kept) and not all(one.all() for one in kept):
        return (
            "A rank has its own part updated, and the others' parts as they were: after the update, gather all parts."
        )
    return habit_of(case, team, got[0], step)


def _bytes(case: Case, seen: Observation) -> str | None:
    numel = sum(tensor.numel() for tensor in train(case, list(range(case.ranks))).start)
    once = (case.ranks - 1) * numel * torch.empty(0, dtype=case.inputs[0]["dtype"]).element_size()
    for number in range(len(seen.results[0]["calls"])):
        made = [
            message
            for rank, result in enumerate(seen.results)
            for message in seen.of_rank(rank)[slice(*result["calls"][number])]
        ]
        sent = sum(message.sent_bytes for message in made)
        if sent > 1.2 * once:
            kinds = sorted({message.kind for message in made if message.sent_bytes})
            cause = (
                "That is an all-reduce: it brings the whole sum to every rank, and a rank needs only its shard."
                if "all_reduce" in kinds
                else "Each rank's part of each shard has to travel once."
            )
            return (
                f"In a backward the ranks send {sent / once:.2g} times the bytes of a reduce-scatter, (n−1)/n of the "
                f"gradients each ({', '.join(kinds)}). {cause}"
            )
        if sent < 0.9 * once:
            return (
                "Fewer bytes travel in a backward than a reduce-scatter needs: in a narrower dtype, or not in each one?"
            )
    return None


def most_held(numel: int, ranks: int) -> int:
    """The most bytes besides weights: float32 shards of gradients and of both states, and a copy of one shard."""
    return round(1.06 * 16 * -(-numel // ranks)) + 2048


def _kept(case: Case, seen: Observation) -> str | None:
    numel = sum(tensor.numel() for tensor in train(case, list(range(case.ranks))).start)
    shard = 4 * -(-numel // case.ranks)
    for rank, result in enumerate(seen.results):
        if result["left"]:
            return (
                f"After `backward` {result['left']} parameters of rank {rank} still hold their whole gradient in "
                "`.grad`: set it to None once the shard is there."
            )
        held = result["held"]
        if held > case.inputs[0]["most"]:
            cause = "Does a flat tensor of all gradients stay alive, or are AdamW's states whole?"
            if held > 8 * numel * 0.95 + shard:
                cause = "AdamW's states are whole on every rank: make them for this rank's shard only."
            elif held > 4 * numel * 0.95:
                cause = "A tensor of all gradients stays alive on every rank: keep no reference to it after `backward`."
            return (
                f"After the last backward rank {rank} holds {held / shard:.1f} shards' worth besides the weights; "
                f"3 are needed: gradients, and AdamW's two states. {cause}"
            )
    return None


ZERO2 = Exercise(
    id="zero2_gradients",
    lesson=LESSON,
    names=("Zero2",),
    judgements=(
        Judgement(SHARD, 1, _shard),
        Judgement(TRAINING, 1, _training),
        Judgement(BYTES, 0.5, _bytes, how=True),
        Judgement(KEPT, 0.5, _kept, how=True),
    ),
    cases=zero2_cases,
    drive=drive_zero2,
)
