"""Exercise my_share: contiguous shares, all items once, larger shares first."""

from __future__ import annotations

import random
from types import SimpleNamespace
from typing import Any

from autograder import compare
from autograder.exercise import Case, Exercise, Judgement
from rankzero.observe.observation import Observation

LESSON = "00_start_here"

EACH_ONCE = "every item once, in order"
BALANCED = "sizes differ by at most one, larger shares first"
FEW_ITEMS = "fewer items than ranks"


def drive_shares(answers: SimpleNamespace, inputs: dict[str, Any]) -> Any:
    """The shares of all ranks, for each (n_items, world_size)."""
    return [[answers.my_share(n_items, rank, world) for rank in range(world)] for n_items, world in inputs["divisions"]]


def share_cases(rng: random.Random) -> list[Case]:
    def case(name: str, divisions: list[tuple[int, int]], *judgements: str, hidden: bool = False) -> Case:
        return Case(name, [{"divisions": divisions}], judgements, hidden=hidden)

    drawn = []
    for _ in range(12):
        world = rng.randint(2, 9)
        drawn.append((world * rng.randint(1, 6) + rng.randint(0, world - 1), world))
    worlds = [rng.randint(3, 12) for _ in range(6)]
    return [
        case("12 items, 4 ranks", [(12, 4)], EACH_ONCE, BALANCED),
        case("10 items, 4 ranks", [(10, 4), (13, 3), (9, 4)], EACH_ONCE, BALANCED),
        case("one rank", [(7, 1), (1, 1)], EACH_ONCE),
        case("2 items, 5 ranks", [(2, 5), (1, 3), (0, 3)], FEW_ITEMS),
        case("many items", [(1_000_003, 8)], EACH_ONCE, BALANCED),
        case("other numbers of items and ranks", drawn, EACH_ONCE, BALANCED, hidden=True),
        case(
            "fewer items than ranks",
            [(rng.randrange(world), world) for world in worlds],
            FEW_ITEMS,
            hidden=True,
        ),
        case("many items, other ranks", [(10**6 + rng.randint(1, 99), 7)], EACH_ONCE, BALANCED, hidden=True),
    ]


def _divisions(case: Case, seen: Observation):
    """Per division: its name, n_items, and the shares as ranges; or a sentence about their type."""
    for (n_items, world), shares in zip(case.inputs[0]["divisions"], seen.results[0], strict=True):
        title = "A share" if case.hidden else f"{n_items} items over {world} ranks: the share"
        for rank, got in enumerate(shares):
            if not isinstance(got, range):
                who = "" if case.hidden else f" of rank {rank}"
                yield (f"{title}{who} is {compare.describe(got)}; a `range` was expected, such as `range(3, 6)`.")
                return
        yield title, n_items, shares


def _each_once(case: Case, seen: Observation) -> str | None:
    for division in _divisions(case, seen):
        if isinstance(division, str):
            return division
        title, n_items, shares = division
        following = 0
        for rank, got in enumerate(shares):
            if not got:
                continue
            shown = "" if case.hidden else f" ({got}, where {following} comes next)"
            if got.step != 1 and len(got) > 1:
                return f"{title} of rank {rank} is not contiguous{shown}: one piece without gaps was expected."
            if got.start < 0:
                return f"{title} of rank {rank} begins before the first item{shown}."
            if got.start < following:
                return f"{title} of rank {rank} holds items that an earlier rank has already{shown}."
            if got.start > following:
                return f"{title} of rank {rank} starts too late{shown}: items before it belong to nobody."
            following = got.start + len(got)
        if following < n_items:
            lost = "" if case.hidden else f" ({n_items - following} of them)"
            return f"{title}s end too early: the last items belong to nobody{lost}. Who takes the remainder?"
        if following > n_items:
            return f"{title}s go beyond the last item. Sizes rounded up?"
    return None


def _balanced(case: Case, seen: Observation) -> str | None:
    for division in _divisions(case, seen):
        if isinstance(division, str):
            return division
        title, _, shares = division
        sizes = [len(got) for got in shares]
        shown = "" if case.hidden else f" ({', '.join(map(str, sizes))})"
        if max(sizes) - min(sizes) > 1:
            return f"{title}s differ by more than one item{shown}. Give the remainder out one item at a time."
        if sizes != sorted(sizes, reverse=True):
            return (
                f"{title}s are well balanced, but a smaller one comes before a larger{shown}. The "
                "first ranks take one more."
            )
    return None


def _exact(case: Case, seen: Observation) -> str | None:
    return _each_once(case, seen) or _balanced(case, seen)


MY_SHARE = Exercise(
    id="my_share",
    lesson=LESSON,
    names=("my_share",),
    judgements=(
        Judgement(EACH_ONCE, 1, _each_once),
        Judgement(BALANCED, 1, _exact),
        Judgement(FEW_ITEMS, 1, _exact),
    ),
    cases=share_cases,
    drive=drive_shares,
    process_group=False,
)
