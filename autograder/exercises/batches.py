"""Exercise largest_micro_batch: a search that never overflows, leaves no room for one more, and asks seldom."""

from __future__ import annotations

import random
from types import SimpleNamespace
from typing import Any

from autograder import compare
from autograder.exercise import Case, Exercise, Judgement
from autograder.exercises.common import as_number
from rankzero.observe.observation import Observation

LESSON = "01_vram"

LARGEST = "the largest that fits, 0 if none does"
BENT = "also where the need does not grow evenly"
SELDOM = "asks seldom"
#: What a search by doubling and halving takes for answers in the thousands is about 25; a bisection from a large fixed
#: bound, about 40.
MOST_CALLS = 50
_MANY = 20_000


def need(recipe: dict[str, int], n: int) -> int:
    """Bytes for a micro-batch of n: fixed, per sample, per pair of samples, rounded up to whole pages."""
    exact = recipe["fixed"] + recipe["each"] * n + recipe.get("square", 0) * n * n
    page = recipe.get("page", 1)
    return -(-exact // page) * page


def search(answers: SimpleNamespace, recipe: dict[str, int], gpu_bytes: int, many: int) -> dict[str, Any]:
    asked = []

    def bytes_needed(micro_batch: int) -> int:
        if isinstance(micro_batch, float) and micro_batch.is_integer():
            micro_batch = int(micro_batch)
        if not isinstance(micro_batch, int) or isinstance(micro_batch, bool):
            micro_batch = micro_batch.__index__()
        if micro_batch < 0:
            raise ValueError(f"bytes_needed was asked for a micro-batch of {micro_batch}")
        asked.append(micro_batch)
        if len(asked) > many:
            raise RuntimeError(f"bytes_needed was called more than {many:,} times: it is costly, ask seldom")
        return need(recipe, micro_batch)

    return {"got": as_number(answers.largest_micro_batch(bytes_needed, gpu_bytes)), "calls": len(asked)}


def drive_search(answers: SimpleNamespace, inputs: dict[str, Any]) -> Any:
    return [search(answers, recipe, gpu_bytes, inputs["many"]) for recipe, gpu_bytes in inputs["searches"]]


# -- on the judge's side ----------------------------------------------------------------------------------


def largest(recipe: dict[str, int], gpu_bytes: int) -> int:
    """The right answer: the largest n whose need is at most ``gpu_bytes``."""
    if need(recipe, 1) > gpu_bytes:
        return 0
    low, high = 1, 2
    while need(recipe, high) <= gpu_bytes:
        low, high = high, 2 * high
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (middle, high) if need(recipe, middle) <= gpu_bytes else (low, middle)
    return low


def search_cases(rng: random.Random) -> list[Case]:
    def case(name: str, *searches: tuple[dict[str, int], int], judgement: str, hidden: bool = False) -> Case:
        inputs = [{"searches": list(searches), "many": _MANY}]
        return Case(name, inputs, (judgement, SELDOM), hidden=hidden, deadline_seconds=5.0)

    def room_for(recipe: dict[str, int], n: int, spare: float) -> tuple[dict[str, int], int]:
        """A card on which just n fit, with that share of one more to spare."""
        here, more = need(recipe, n), need(recipe, n + 1)
        return recipe, here + int(spare * (more - here - 1))

    def recipe(**more: int) -> dict[str, int]:
        return {"fixed": rng.randint(10**9, 2 * 10**10), "each": rng.randint(10**6, 10**8)} | more

    def bent() -> dict[str, int]:
        return recipe(square=rng.randint(10**3, 10**5), page=2**21)

    even = {"fixed": 6 * 10**9, "each": 10**9}
    return [
        case("6 GB and 1 GB per sample, on 24 GB", (even, 24 * 10**9), judgement=LARGEST),
        case("a little less than 24 GB", (even, 24 * 10**9 - 1), judgement=LARGEST),
        case("just one fits", (even, 7 * 10**9 + 5), judgement=LARGEST),
        case("none fits", (even, 65 * 10**8), (even, 10**9), judgement=LARGEST),
        case("thousands fit", room_for({"fixed": 10**9, "each": 10**7}, 3000, 0.5), judgement=LARGEST),
        case("whole pages of 2 GiB", ({"fixed": 10**9, "each": 3 * 10**8, "page": 2**31}, 80 * 2**30), judgement=BENT),
        case("attention by the square", ({"fixed": 10**9, "each": 10**6, "square": 10**5}, 24 * 2**30), judgement=BENT),
        case("other sizes", *(room_for(recipe(), rng.randint(2, 700), rng.random()) for _ in range(6)),
             judgement=LARGEST, hidden=True),
        case("exactly full", *(room_for(recipe(), rng.randint(2, 3000), 0.0) for _ in range(4)),
             judgement=LARGEST, hidden=True),
        case("one or none fits", room_for(recipe(), 1, rng.random()), (recipe(), 10**9),
             judgement=LARGEST, hidden=True),
        case("other uneven needs", *((bent(), rng.randint(24, 80) * 2**30) for _ in range(6)),
             judgement=BENT, hidden=True),
    ]  # fmt: skip


def _largest(case: Case, seen: Observation) -> str | None:
    for (recipe, gpu_bytes), result in zip(case.inputs[0]["searches"], seen.results[0], strict=True):
        got, right = result["got"], largest(recipe, gpu_bytes)
        if type(got) is not float:
            hint = " If none fits, return 0." if got is None and not right else ""
            return f"It returned {compare.describe(got)}; a whole number was expected.{hint}"
        if got == right:
            continue
        shown = "The micro-batch is wrong." if case.hidden else f"It returned {got:g}; {right} was expected."
        return f"{shown} {_cause(got, right, recipe, gpu_bytes)}".strip()
    return None


def _cause(got: float, right: int, recipe: dict[str, int], gpu_bytes: int) -> str:
    if got != int(got) or got < 0:
        return "A micro-batch is a whole number, 0 or more."
    if right == 0:
        return "Not even one sample fits, so the answer is 0."
    if got > right:
        more = need(recipe, int(got)) - gpu_bytes
        return f"That overflows the card by {more:,} bytes: what is returned must itself fit."
    if got == right - 1 and need(recipe, right) == gpu_bytes:
        return "A need that is just the card's size still fits: compare with <=."
    if got == right - 1:
        return "There is room for one more."
    if got > 0 and int(got) & (int(got) - 1) == 0:
        return "That is the last power of two that fits; search on between it and the first that does not."
    if recipe.get("square") or recipe.get("page", 1) > 1:
        return "There is room for more. The need does not grow evenly: ask `bytes_needed`, do not extrapolate."
    return f"There is room for {right - got:g} more."


def _seldom(case: Case, seen: Observation) -> str | None:
    for result in seen.results[0]:
        if result["calls"] > MOST_CALLS:
            return (
                f"`bytes_needed` was called {result['calls']} times; {MOST_CALLS} are more than enough. Each call may "
                "be a whole training step: double until it no longer fits, then halve the interval."
            )
    return None


LARGEST_MICRO_BATCH = Exercise(
    id="largest_micro_batch",
    lesson=LESSON,
    names=("largest_micro_batch",),
    judgements=(Judgement(LARGEST, 1, _largest), Judgement(BENT, 1, _largest), Judgement(SELDOM, 1, _seldom, how=True)),
    cases=search_cases,
    drive=drive_search,
    process_group=False,
)
