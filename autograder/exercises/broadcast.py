"""Exercise broadcast_tree: any src, ⌈log₂ n⌉ rounds, nobody receives twice."""

from __future__ import annotations

import math
import random

import torch

from autograder import compare
from autograder.exercise import Case, Exercise, Judgement
from autograder.exercises.by_hand import (
    Drawer,
    calls_of,
    collective_case,
    drive_broadcast,
    hints,
    only_returned,
)
from autograder.exercises.common import library_call, line_of
from rankzero.observe.observation import Message, Observation

LESSON = "04_collectives"

EVERYONE = "every rank ends with src's tensor"
ROUNDS = "in ⌈log₂ n⌉ rounds"
ONCE = "nobody receives twice"


def broadcast_cases(rng: random.Random) -> list[Case]:
    draw = Drawer(rng)
    judged = (EVERYONE, ROUNDS, ONCE)
    return [
        collective_case("4 ranks, src left out", draw.tensors(4, 6), judged),
        collective_case("4 ranks, from the last", draw.tensors(4, 5), judged, src=3),
        collective_case("3 ranks, from rank 1, 2 × 3 int64", draw.tensors(3, 2, 3, dtype=torch.int64), judged, src=1),
        collective_case("4 ranks, src late, called twice", draw.tensors(4, 9, calls=2), judged, src=0, late="first"),
        collective_case("2 ranks, float64, from rank 1", draw.tensors(2, 1, dtype=torch.float64), judged, src=1),
        collective_case("1 rank", draw.tensors(1, 3), judged, src=0),
        collective_case("5 ranks, from the last", draw.tensors(5, 4), judged, src=4, hidden=True),
        collective_case(
            "5 ranks, src late, called twice",
            draw.tensors(5, 7, calls=2),
            judged,
            src=1,
            late="first",
            hidden=True,
        ),
        collective_case(
            "4 ranks, bfloat16, from rank 2",
            draw.tensors(4, 3, 3, dtype=torch.bfloat16),
            judged,
            src=2,
            hidden=True,
        ),
        collective_case(
            "3 ranks, float16, from rank 2",
            draw.tensors(3, 5, dtype=torch.float16),
            judged,
            src=2,
            hidden=True,
        ),
        collective_case(
            "3 ranks, some late, a single number", draw.tensors(3), judged, src=0, late="last", hidden=True
        ),
    ]


def _src(case: Case) -> int:
    return case.inputs[0]["src"] or 0


def _everyone(case: Case, seen: Observation) -> str | None:
    if problem := library_call(seen, "broadcast"):
        return problem
    src = _src(case)
    for call, local in calls_of(case):
        want = [local[src]] * case.ranks
        if problem := only_returned(seen, call, want, local, [0.0] * case.ranks):
            return problem
        got = [result[call]["tensor"] for result in seen.results]
        if problem := compare.explain(want, got, local, what="holds", **hints(case, seen)):
            return f"{problem} (src is {src}.)"
    return None


def _sends(case: Case, seen: Observation) -> list[list[list[Message]]]:
    """Per call of the case, the sends of each rank in its order."""
    calls = len(case.inputs[0]["tensors"])
    by_rank = [[message for message in seen.of_rank(rank) if message.kind == "send"] for rank in range(case.ranks)]
    return [
        [mine[len(mine) * call // calls : len(mine) * (call + 1) // calls] for mine in by_rank] for call in range(calls)
    ]


def _once(case: Case, seen: Observation) -> str | None:
    src = _src(case)
    for sends in _sends(case, seen):
        received = [0] * case.ranks
        for message in (message for mine in sends for message in mine):
            received[message.peer] += 1
            if message.peer == src:
                return (
                    f"Rank {message.rank} sent to rank {src}{line_of(message)}, which is src and has "
                    "the data from the start."
                )
        for rank, times in enumerate(received):
            if times > 1:
                return f"Rank {rank} received {times} messages; one with the whole tensor is enough."
            if not times and rank != src:
                return f"No send to rank {rank} was seen. Send with the calls of `torch.distributed`."
    return None


def _rounds(case: Case, seen: Observation) -> str | None:
    for sends in _sends(case, seen):
        needed = _count_rounds(_src(case), sends)
        enough = math.ceil(math.log2(case.ranks))
        if needed > enough:
            busiest = max(range(case.ranks), key=lambda rank: len(sends[rank]))
            cause = (
                f"Rank {busiest} sends {len(sends[busiest])} times, one after the other: let those "
                "who have the data help."
                if len(sends[busiest]) > enough
                else "In each round every rank that has the data sends it to one that has not."
            )
            return f"It took {needed} rounds; {enough} are enough for {case.ranks} ranks. {cause}"
    return None


def _count_rounds(src: int, sends: list[list[Message]]) -> int:
    """The last round. A message's is one after its sender got the data and after that one's last send."""
    got, rounds, frontier = {src: 0}, 0, [src]
    while frontier:
        rank = frontier.pop(0)
        for later, message in enumerate(sends[rank], start=1):
            rounds = max(rounds, got[rank] + later)
            if message.peer not in got:
                got[message.peer] = got[rank] + later
                frontier.append(message.peer)
    return rounds


BROADCAST = Exercise(
    id="broadcast_tree",
    lesson=LESSON,
    names=("broadcast",),
    judgements=(
        Judgement(EVERYONE, 1, _everyone),
        Judgement(ONCE, 1, _once, how=True),
        Judgement(ROUNDS, 1, _rounds, how=True),
    ),
    cases=broadcast_cases,
    drive=drive_broadcast,
)
