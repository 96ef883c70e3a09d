"""Exercise gpus_for_deadline: how many cards, in whole nodes, meet a deadline."""

from __future__ import annotations

import inspect
import math
import random
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

from autograder import compare
from autograder.exercise import Case, Exercise, Judgement
from autograder.exercises.common import as_number
from rankzero.observe.observation import Observation

LESSON = "05_ddp"

NODES = "whole nodes, efficiency at that size"
NEVER = "a speed-up that falls again, exactly in time, and never"

# -- in the rank: shipped there by value ----------------------------------------------------------------------


def efficiency_of(curve: tuple) -> Callable[[int], float]:
    """A function of the number of cards, from its description."""
    kind, *numbers = curve
    if kind == "constant":
        return lambda cards: numbers[0]
    if kind == "table":
        return lambda cards: next((value for most, value in numbers[0] if cards <= most), numbers[1])
    if kind == "amdahl":
        return lambda cards: 1 / (numbers[0] * cards + 1 - numbers[0])
    return lambda cards: numbers[0] ** (cards.bit_length() - 1)


def drive_deadline(answers: SimpleNamespace, inputs: dict[str, Any]) -> list[Any]:
    """What each call returned, or what it raised."""
    seen: list[Any] = []
    parameters = inspect.signature(answers.gpus_for_deadline).parameters
    for hours, deadline, curve, per_node, most in inputs["calls"]:
        named = {"max_gpus": most} if most != 4096 and "max_gpus" in parameters else {}
        if most != 4096 and not named:
            seen.append({"skipped": True})
            continue
        try:
            got = answers.gpus_for_deadline(hours, deadline, efficiency_of(curve), per_node, **named)
            seen.append({"got": as_number(got)})
        except ValueError:
            seen.append({"raised": "ValueError"})
        except (ArithmeticError, LookupError, StopIteration, RuntimeError, AssertionError) as error:
            seen.append({"raised": type(error).__name__})
    return seen


# -- on the judge's side --------------------------------------------------------------------------------------


def deadline_cases(rng: random.Random) -> list[Case]:
    def case(name: str, judgement: str, *calls: tuple, hidden: bool = False) -> Case:
        full = [(*call, 4096) if len(call) == 4 else call for call in calls]
        return Case(name, [{"calls": full}], (judgement,), hidden=hidden)

    def drawn() -> tuple:
        curve = ("amdahl", rng.uniform(0.001, 0.008))
        return rng.uniform(500, 2000), rng.uniform(20, 60), curve, rng.choice([2, 4, 8, 16])

    ideal = ("constant", 1.0)
    # Two cards do it, four and eight do not, eighteen do again.
    falls = ("table", ((2, 0.75), (4, 0.25), (8, 0.125), (16, 0.0625)), 0.5)
    # 26 cards would do, were they whole nodes; 32 do not, 40 do.
    steps = ("table", ((8, 0.99), (31, 0.85), (39, 0.6)), 0.85)
    return [
        case("42 days in 36 hours, nodes of 8", NODES, (1008.0, 36.0, ("table", ((8, 0.97), (16, 0.94)), 0.9), 8)),
        case("efficiency falls with every doubling", NODES, (1008.0, 36.0, ("doubling", 0.93), 8)),
        case("nodes of 1, 4 and 16", NODES, *((300.0, 20.0, ("amdahl", 0.01), per_node) for per_node in (1, 4, 16))),
        case("the last node costs efficiency", NODES, (792.0, 36.0, steps, 8)),
        case("one node is enough", NODES, (10.0, 24.0, ideal, 8)),
        case("exactly in time", NEVER, (512.0, 32.0, ideal, 8), (512.0, 16.0, ("constant", 0.5), 8)),
        case("more cards, slower, then faster again", NEVER, (96.0, 65.0, falls, 2), (96.0, 12.0, falls, 2)),
        case("never", NEVER, (1000.0, 1.0, ("amdahl", 0.01), 8)),
        case("4,096 cards and no more", NEVER, (4096.0, 1.0, ideal, 8), (4104.0, 1.0, ideal, 8)),
        case("max_gpus=64", NEVER, (64.0, 1.0, ideal, 8, 64), (72.0, 1.0, ideal, 8, 64)),
        case("other runs", NODES, *(drawn() for _ in range(6)), hidden=True),
        case(
            "other runs, nodes of 3",
            NEVER,
            (1000.0, 0.125, ideal, 3),
            (4095.0, 1.0, ideal, 3),
            (4096.0, 1.0, ideal, 3),
            hidden=True,
        ),
    ]


def cards(call: tuple, *, strict: bool = False) -> int | None:
    """The smallest multiple of per_node that is in time; None if there is none."""
    hours, deadline, curve, per_node, most = call
    efficiency = efficiency_of(curve)
    for number in range(per_node, most + 1, per_node):
        needed = hours / (number * efficiency(number))
        if needed < deadline or (needed == deadline and not strict):
            return number
    return None


def _deadline(case: Case, seen: Observation) -> str | None:
    for call, result in zip(case.inputs[0]["calls"], seen.results[0], strict=True):
        want = cards(call)
        if "skipped" in result:
            continue
        if raised := result.get("raised"):
            if want is None and raised == "ValueError":
                continue
            if want is None:
                return f"No number of cards is in time: a ValueError was expected, not {raised}."
            return f"It raised {raised}, but {_some(want, case)} are in time. {_why_raised(call, want)}"
        got = result["got"]
        if want is None:
            given = f"{got:g}" if isinstance(got, float) else compare.describe(got)
            return f"It returned {given}, where up to {call[4]} no whole nodes are in time: raise a ValueError."
        if not isinstance(got, float):
            return f"It returned {compare.describe(got)}; a number of cards was expected."
        if got != want:
            numbers = "a wrong number" if case.hidden else f"{got:g} cards; {want} were expected"
            return f"It returned {numbers}. {_why(call, got, want)}"
    return None


def _some(want: int, case: Case) -> str:
    return "some cards" if case.hidden else f"{want} cards"


def _why_raised(call: tuple, want: int) -> str:
    if want == call[4] or want + call[3] > call[4]:
        return "max_gpus itself is allowed."
    if _in_time(call, want) and cards(call, strict=True) != want:
        return "Exactly at the deadline is in time."
    return "A larger number may be faster again where a smaller one was slower: try them all."


def _in_time(call: tuple, number: int) -> bool:
    hours, deadline, curve, _, _ = call
    return hours / (number * efficiency_of(curve)(number)) <= deadline


def _why(call: tuple, got: float, want: int) -> str:
    hours, deadline, curve, per_node, most = call
    efficiency = efficiency_of(curve)

    def up(number: float) -> int:
        return math.ceil(number / per_node - 1e-9) * per_node

    single = next((number for number in range(1, most + 1) if _in_time(call, number)), 0)
    power = next((per_node * 2**k for k in range(13) if _in_time(call, per_node * 2**k)), 0)
    if got * per_node == want:
        return "Those are nodes; cards were asked for."
    if got % per_node:
        return f"That is no whole number of nodes of {per_node}."
    if got == cards(call, strict=True):
        return "Exactly at the deadline is in time: hours ≤ deadline_hours."
    if single and got == up(single) and not _in_time(call, int(got)):
        return (
            "That is the first number in time, rounded up to whole nodes. At the rounded number the efficiency is "
            "another: try whole nodes only."
        )
    if got == up(hours / deadline):
        return "The efficiency is left out: that would do only at 100 %."
    for size, words in ((1, "one card"), (per_node, "one node")):
        if got == up(hours / deadline / efficiency(size)):
            return f"The efficiency of {words} is used: take it at the number of cards that you try."
    if got == up(hours / deadline / efficiency(up(hours / deadline))):
        return "The efficiency is taken at the ideal number of cards: take it at the number that you try."
    if got == power:
        return "Only doublings of a node were tried: every multiple of per_node counts."
    if got < want:
        return "That is not in time: hours are single_gpu_hours / (cards · efficiency(cards))."
    if got > want and _in_time(call, int(got)):
        return (
            "It is in time, but fewer cards are, too. A speed-up may rise and fall: try all multiples from one node on."
        )
    return "Hours are single_gpu_hours / (cards · efficiency(cards))."


GPUS_FOR_DEADLINE = Exercise(
    id="gpus_for_deadline",
    lesson=LESSON,
    names=("gpus_for_deadline",),
    judgements=(Judgement(NODES, 1, _deadline), Judgement(NEVER, 1, _deadline)),
    cases=deadline_cases,
    drive=drive_deadline,
    process_group=False,
)
