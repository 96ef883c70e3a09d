"""Lesson 00, your machine, your ranks: the first collective, the first hang, and the quiz."""

from __future__ import annotations

import random
from types import SimpleNamespace
from typing import Any

import torch
from torch import Tensor

from autograder import compare
from autograder.exercise import Case, Exercise, Judgement, Question
from autograder.exercises.common import (
    bring_home,
    make_quiz,
    pause,
    torch_generator,
)
from autograder.exercises.shares import MY_SHARE
from rankzero.observe.observation import POINT_TO_POINT, Observation

LESSON = "00_start_here"

# -- sum_over_ranks ---------------------------------------------------------------------------------------

SUM = "every rank gets the sum"
DOUBLE = "in double precision"
ONE_COLLECTIVE = "with one collective"


def drive_sum(answers: SimpleNamespace, inputs: dict[str, Any]) -> Any:
    pause(inputs)
    results = []
    for value in inputs["values"]:
        got = answers.sum_over_ranks(value)
        # numpy's float64 is a Python float too; a bool or a tensor is not.
        results.append(float(got) if isinstance(got, float) else got)
    return results


def sum_cases(rng: random.Random) -> list[Case]:
    def case(name: str, by_rank: list[list[float]], *judgements: str, late: bool = False, hidden: bool = False) -> Case:
        n = len(by_rank)
        inputs = [
            {"values": values, "sleep_seconds": 0.03 * (n - 1 - rank) if late else 0.0}
            for rank, values in enumerate(by_rank)
        ]
        return Case(name, inputs, (*judgements, ONE_COLLECTIVE), hidden=hidden, deadline_seconds=3.0)

    def fine(n: int) -> list[list[float]]:
        # A float32 has 24 bits: next to 3e7 it cannot hold a quarter.
        return [[rng.randint(2**25, 2**26) + rng.choice((0.25, 0.125)) + rank] for rank in range(n)]

    def rough(n: int) -> list[list[float]]:
        return [[rng.uniform(-9, 9), rng.uniform(0, 9)] for _ in range(n)]

    return [
        case("rank r gives 10**r, 4 ranks", [[float(10**rank)] for rank in range(4)], SUM),
        case("3 ranks, called twice", rough(3), SUM),
        case("1 rank", [[2.5]], SUM),
        case("large values, 4 ranks", fine(4), DOUBLE),
        case("2 ranks, one late", rough(2), SUM, late=True, hidden=True),
        case("5 ranks", rough(5), SUM, hidden=True),
        case("large values, 3 ranks", fine(3), DOUBLE, hidden=True),
        case(
            "tiny beside huge values",
            [[2.0**40 * (rank + 1) + rng.random()] for rank in range(4)],
            DOUBLE,
            hidden=True,
        ),
    ]


def _sum(case: Case, seen: Observation) -> str | None:
    """The sum as far as a float32 goes; what is beyond that is judged apart."""
    return _sum_within(2.0**-22, case, seen)


def _double(case: Case, seen: Observation) -> str | None:
    problem = _sum_within(2.0**-52, case, seen)
    if problem and not _sum(case, seen):
        return (
            "The sum is right only to about 7 digits, as in float32. A Python float has double precision: "
            "make the tensor with `dtype=torch.float64`."
        )
    return problem


def _sum_within(eps: float, case: Case, seen: Observation) -> str | None:
    n = case.ranks
    for call in range(len(case.inputs[0]["values"])):
        values = [inputs["values"][call] for inputs in case.inputs]
        got = [result[call] for result in seen.results]
        for rank, one in enumerate(got):
            if type(one) is not float:
                hint = " Take the number out of it with `.item()`." if isinstance(one, Tensor) else ""
                hint = hint or (" `all_reduce` works in place and returns None." if one is None else "")
                return f"Rank {rank} returned {compare.describe(one)}; a float was expected.{hint}"
        local = [torch.tensor(value, dtype=torch.float64) for value in values]
        problem = compare.explain(
            [torch.tensor(sum(values), dtype=torch.float64)] * n,
            [torch.tensor(one, dtype=torch.float64) for one in got],
            local,
            slack=[torch.tensor(eps * n * sum(map(abs, values)), dtype=torch.float64)] * n,
            reduction="sum",
            digits="10**r" in case.name,
            hidden=case.hidden,
        )
        if problem:
            return problem
    return None


def _one_collective(case: Case, seen: Observation) -> str | None:
    calls = len(case.inputs[0]["values"])
    for rank in range(case.ranks):
        messages = seen.of_rank(rank)
        for message in messages:
            if message.kind in POINT_TO_POINT:
                return f"Rank {rank} used {message.kind}. One collective does it all, and every rank calls it."
        if case.ranks == 1 and not messages:
            continue
        if len(messages) != calls:
            kinds = ", ".join(message.kind for message in messages) or "none"
            return (
                f"Rank {rank} made {len(messages)} collective calls ({kinds}) in {calls} call(s) of "
                "`sum_over_ranks`; one each is enough."
            )
    return None


SUM_OVER_RANKS = Exercise(
    id="sum_over_ranks",
    lesson=LESSON,
    names=("sum_over_ranks",),
    judgements=(
        Judgement(SUM, 1, _sum),
        Judgement(DOUBLE, 1, _double),
        Judgement(ONE_COLLECTIVE, 1, _one_collective, how=True),
    ),
    cases=sum_cases,
    drive=drive_sum,
)

# -- fix_the_hang -----------------------------------------------------------------------------------------

RANK_ZERO = "all ranks return, rank 0 with the mean"
OTHERS = "the other ranks return None"
ALONE = "the caller's `value` is left alone"


def drive_report(answers: SimpleNamespace, inputs: dict[str, Any]) -> Any:
    results = []
    for value in inputs["values"]:
        pause(inputs)
        mine = value.clone()
        returned = bring_home(answers.rank_zero_reports(mine))
        results.append({"returned": returned, "value": mine})
    return results


def report_cases(rng: random.Random) -> list[Case]:
    generator = torch_generator(rng)

    def case(name: str, n: int, shape: tuple[int, ...], dtype=torch.float32, late=False, calls=1, hidden=False) -> Case:
        inputs = []
        for rank in range(n):
            values = [(torch.randn(shape, generator=generator) * 3 + rank).to(dtype) for _ in range(calls)]
            inputs.append({"values": values, "sleep_seconds": 0.03 * rank if late else 0.0})
        return Case(name, inputs, (RANK_ZERO, OTHERS, ALONE), hidden=hidden, deadline_seconds=3.0)

    return [
        case("3 ranks, 4 elements", 3, (4,)),
        case("4 ranks, 2 × 3 elements", 4, (2, 3)),
        case("2 ranks, rank 1 late, called twice", 2, (5,), late=True, calls=2),
        case("1 rank", 1, (3,)),
        case("4 ranks, float64, a single number", 4, (), torch.float64),
        case("5 ranks, some late, called twice", 5, (7,), late=True, calls=2, hidden=True),
        case("3 ranks, bfloat16", 3, (3, 2), torch.bfloat16, hidden=True),
        case("3 ranks, float64, three dims", 3, (2, 1, 3), torch.float64, hidden=True),
    ]


def _rank_zero(case: Case, seen: Observation) -> str | None:
    for call in range(len(case.inputs[0]["values"])):
        local = [inputs["values"][call] for inputs in case.inputs]
        mean = sum(value.double() for value in local) / case.ranks
        problem = compare.explain(
            [mean.to(local[0].dtype)],
            [seen.results[0][call]["returned"]],
            local[:1],
            ranks=case.ranks,
            # One more rounding for the division.
            slack=[compare.summation_slack(local) * (case.ranks + 1) / case.ranks**2],
            reduction="mean",
            hidden=case.hidden,
        )
        if problem:
            return problem
    return None


def _others(case: Case, seen: Observation) -> str | None:
    for rank in range(1, case.ranks):
        for call in range(len(case.inputs[rank]["values"])):
            returned = seen.results[rank][call]["returned"]
            if returned is not None:
                return (
                    f"Rank {rank} returned {compare.describe(returned)}; only rank 0 reports, "
                    "the others return "
                    "None. All take part in the collective, only the `return` depends on the rank."
                )
    return None


def _left_alone(case: Case, seen: Observation) -> str | None:
    for rank in range(case.ranks):
        for value, call in zip(case.inputs[rank]["values"], seen.results[rank], strict=True):
            if compare.misfit(call["value"], value, "") or not torch.equal(call["value"], value):
                return (
                    f"On rank {rank} the caller's `value` is changed after the call. A collective "
                    "works in place: "
                    "hand it a copy (`value.clone()`)."
                )
    return None


FIX_THE_HANG = Exercise(
    id="fix_the_hang",
    lesson=LESSON,
    names=("rank_zero_reports",),
    judgements=(
        Judgement(RANK_ZERO, 2, _rank_zero),
        Judgement(OTHERS, 1, _others, how=True),
        Judgement(ALONE, 1, _left_alone, how=True),
    ),
    cases=report_cases,
    drive=drive_report,
)

# -- the quiz ---------------------------------------------------------------------------------------------

QUESTIONS = (
    Question(
        key="q1",
        text="`rankzero.run(f, ranks=3)` returns a list of three results. Where did `f` run?",
        options={
            "a": "Once, in this notebook's process, with each tensor cut into three pieces.",
            "b": "In three threads of this notebook's process, which share its variables.",
            "c": "In three processes; each has its own memory and sees of the others only what they send.",
            "d": "In one process with three turns, one rank after the other.",
        },
        right="d7ff83b2663b7682",
        why=(
            "A rank is a process of its own, numbered 0 to world size − 1. A variable that one rank "
            "sets does not "
            "exist for the others; a backend (gloo on CPUs, NCCL on NVIDIA GPUs) carries what they send."
        ),
    ),
    Question(
        key="q2",
        text=(
            'After the deadline you read: "rank 0 waits in all_reduce, line 7; ranks 1, 2 and 3 have '
            'returned". '
            "What is the likeliest cause?"
        ),
        options={
            "a": "The network is slow: a longer deadline would let rank 0 finish.",
            "b": "Line 7 stands where only rank 0 gets to; the others never entered that all_reduce.",
            "c": "The ranks entered with different values, so they could not agree on a sum.",
            "d": "Rank 0 entered first; a collective has to be entered last by rank 0.",
        },
        right="2fd7d9be7876991a",
        why=(
            "A collective ends only when every rank of its group has entered it, in any order and "
            "with any values. "
            "A rank that returned without it leaves the others waiting for ever; no deadline is long enough."
        ),
    ),
    Question(
        key="q3",
        text=("With `my_share` as in this lesson, 11 items are cut over 4 ranks. Which items does rank 3 hold?"),
        options={
            "a": "`range(6, 9)`",
            "b": "`range(9, 12)`",
            "c": "`range(8, 11)`",
            "d": "`range(9, 11)`",
        },
        right="7fd2cea2f6f83fc9",
        why=(
            "11 = 3 + 3 + 3 + 2: the remainder goes to the first ranks, one item each, so rank 3 "
            "starts at 9 and has two."
        ),
    ),
)
NUDGES = {
    "q1": "think of a variable that rank 1 sets: can rank 2 read it?",
    "q2": "ask who has to enter a collective before anyone can leave it.",
    "q3": "write down the four sizes first: they add up to 11.",
}

QUIZ = make_quiz(LESSON, QUESTIONS, NUDGES)

EXERCISES: list[Exercise] = [MY_SHARE, SUM_OVER_RANKS, FIX_THE_HANG, QUIZ]
