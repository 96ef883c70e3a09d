"""Exercise zero1_adamw: AdamW whose states are sharded."""

from __future__ import annotations

import math
import random
from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

from autograder import compare
from autograder.exercise import Case, Exercise, Judgement
from autograder.exercises.common import torch_generator
from autograder.exercises.zero_oracle import HABITS, UPDATE, AdamW, Habit, Settings
from autograder.exercises.zero_ranks import drive_zero1
from rankzero.observe.observation import Observation

LESSON = "06_zero"

EQUAL = "equals AdamW on one process"
EVERYWHERE = "parameters without a gradient, schedules, other groups of ranks"
STATES = "a rank holds its share of the states"
ONCE = "updates travel once"

Shape = tuple[int, ...]


def zero1_cases(rng: random.Random) -> list[Case]:
    draw = _Drawer(rng)
    even = [(16, 24)] * 12
    two = [{"which": [0, 3], "weight_decay": 0.2}, {"which": [1, 2], "weight_decay": 0.0, "lr": 3e-3}]
    many = [{"which": list(range(0, 12, 2)), "weight_decay": 0.1}, {"which": list(range(1, 12, 2))}]
    how = (EQUAL, STATES, ONCE)
    return [
        draw.case("4 ranks, 13 elements, 5 steps", 4, [(2, 3), (7,)], (EQUAL,), options={"lr": 1e-2}),
        draw.case("4 ranks, two groups", 4, [(4, 3), (3,), (5,), (2, 2, 3)], (EQUAL,), groups=two),
        draw.case(
            "3 ranks, other settings, float64",
            3,
            [(11,), (3, 5), ()],
            (EQUAL,),
            options={"lr": 0.02, "betas": (0.8, 0.95), "eps": 1e-2, "weight_decay": 0.3},
            dtype=torch.float64,
        ),
        draw.case("4 ranks, 12 matrices", 4, even, how, steps=3, watched=True),
        draw.case("2 ranks", 2, [(5,), (3, 3)], (EQUAL,)),
        draw.case("1 rank", 1, [(5,), (2, 2)], (EQUAL,)),
        draw.case("3 ranks, a learning rate that changes", 3, [(4, 3), (5,)], (EVERYWHERE,), factors=True),
        draw.case("4 ranks, gradients that are None", 4, [(6,), (2, 5), (3,)], (EVERYWHERE,), none=True),
        draw.case("4 ranks, 2 elements", 4, [(2,)], (EVERYWHERE,)),
        draw.case("4 ranks in two groups of two", 4, [(4, 3), (5,)], (EVERYWHERE,), members=[[0, 2], [1, 3]]),
        draw.case(
            "3 ranks, two groups, 7 steps",
            3,
            [(4, 3), (3,), (5,), (2, 2, 3)],
            (EQUAL,),
            groups=two,
            steps=7,
            hidden=True,
        ),
        draw.case("3 ranks, 12 matrices in two groups", 3, even, how, groups=many, steps=2, watched=True, hidden=True),
        draw.case(
            "3 ranks, all at once",
            3,
            [(6,), (2, 5), (3,), (4,)],
            (EVERYWHERE,),
            groups=two,
            none=True,
            factors=True,
            hidden=True,
        ),
        draw.case(
            "4 ranks, groups of three and one", 4, [(7, 3), (5,)], (EVERYWHERE,), members=[[1, 2, 3], [0]], hidden=True
        ),
    ]


class _Drawer:
    def __init__(self, rng: random.Random):
        self.rng, self.generator = rng, torch_generator(rng)

    def case(
        self,
        name: str,
        ranks: int,
        shapes: Sequence[Shape],
        judgements: tuple[str, ...],
        *,
        options: dict[str, Any] | None = None,
        groups: list[dict[str, Any]] | None = None,
        steps: int = 5,
        factors: bool = False,
        none: bool = False,
        members: list[list[int]] | None = None,
        watched: bool = False,
        dtype: torch.dtype = torch.float32,
        hidden: bool = False,
    ) -> Case:
        """A case; ranks of one process group are given the same, the groups differ."""
        teams = members or [list(range(ranks))]
        given = {}
        for team in teams:
            parameters = [self._randn(shape, dtype) + 1.0 for shape in shapes]
            gradients = [[self._gradient(shape, dtype) for shape in shapes] for _ in range(steps)]
            if none:
                self._leave_out(gradients)
            inputs = {
                "parameters": parameters,
                "gradients": gradients,
                "groups": groups,
                "options": options or {},
                "lr_factors": [self.rng.uniform(0.1, 3) for _ in range(steps + 1)] if factors else None,
                "members": members,
                "most": most_states([math.prod(shape) for shape in shapes], ranks) if watched else 0,
            }
            given.update(dict.fromkeys(team, inputs))
        return Case(name, [given[rank] for rank in range(ranks)], judgements, hidden=hidden)

    def _randn(self, shape: Shape, dtype: torch.dtype) -> Tensor:
        return torch.randn(shape, generator=self.generator, dtype=torch.float64).to(dtype)

    def _gradient(self, shape: Shape, dtype: torch.dtype) -> Tensor:
        """Of other sizes in each step, so that the two moments differ; never near zero, where rounding decides."""
        value = self._randn(shape, torch.float64)
        return ((value + 0.1 * value.sign()) * self.rng.uniform(0.2, 3.0)).to(dtype)

    def _leave_out(self, gradients: list[list[Tensor | None]]) -> None:
        """No gradient for the first parameter ever, none for the second in the second step."""
        for step in gradients:
            step[0] = None
        gradients[1][1] = None


def trained(inputs: dict[str, Any], habit: Habit | None = None) -> list[list[Tensor]]:
    """The parameters after each step, from AdamW on one process."""
    defaults = Settings(**inputs["options"])
    settings = [defaults] * len(inputs["parameters"])
    for group in inputs["groups"] or []:
        for which in group["which"]:
            own = {name: value for name, value in group.items() if name != "which"}
            settings[which] = Settings(**{**defaults.__dict__, **own})
    optimizer = AdamW(inputs["parameters"], settings, habit)
    after = []
    for number, gradients in enumerate(inputs["gradients"]):
        optimizer.step(gradients, inputs["lr_factors"][number] if inputs["lr_factors"] else 1.0)
        after.append([weight.clone() for weight in optimizer.weights])
    return after


def slack_of(want: Tensor, dtype: torch.dtype) -> Tensor:
    """How far AdamW in ``dtype`` may be from AdamW in double precision, after some steps."""
    return (want.abs() + 1) * (3e-6 if dtype == torch.float32 else 1e-10)


def _equal(case: Case, seen: Observation) -> str | None:
    if any(not result["is_optimizer"] for result in seen.results):
        return "`ShardedAdamW` is no `torch.optim.Optimizer`: derive it from that class, and call `super().__init__`."
    rights = {id(inputs): trained(inputs) for inputs in case.inputs}
    right = [rights[id(inputs)] for inputs in case.inputs]
    for step in range(len(right[0])):
        for place, start in enumerate(case.inputs[0]["parameters"]):
            got = [result["after"][step][place] for result in seen.results]
            want = [of_rank[step][place].to(start.dtype) for of_rank in right]
            slack = [slack_of(one, start.dtype) for one in want]
            if all(compare.misfit(one, start, "") is None for one in got) and all(map(compare.close, got, want, slack)):
                continue
            return compare.explain(
                want,
                got,
                what=f"has, in parameter {place} after step {step + 1},",
                slack=slack,
                hidden=case.hidden,
                known_cause=_cause(case, seen, right),
            )
    return _same_on_all(case, seen)


def _same_on_all(case: Case, seen: Observation) -> str | None:
    for team in case.inputs[0]["members"] or [list(range(case.ranks))]:
        first, *others = (seen.results[rank]["after"][-1] for rank in team)
        for rank, other in zip(team[1:], others, strict=True):
            if any(not torch.equal(one, two) for one, two in zip(first, other, strict=True)):
                return (
                    f"Ranks {team[0]} and {rank} hold parameters that differ in their last bits after the last step. "
                    "Each element must be updated on one rank only, and that rank's result taken by all."
                )
    return None


def _cause(case: Case, seen: Observation, right: list[list[list[Tensor]]]) -> str:
    """The likeliest cause of wrong parameters, from what is seen on all ranks."""
    steps = range(len(right[0]))

    def matches(expected: list[list[list[Tensor]]]) -> bool:
        return all(
            have.shape == want.shape and compare.close(have, want.to(have.dtype), slack_of(want, have.dtype))
            for result, of_rank in zip(seen.results, expected, strict=True)
            for step in steps
            for have, want in zip(result["after"][step], of_rank[step], strict=True)
        )

    starts = [[inputs["parameters"]] * len(steps) for inputs in case.inputs]
    if matches(starts):
        return "The parameters never change. Are copies updated, and not written back into the parameters?"
    if cause := _partial(case, seen, right):
        return cause
    for habit in HABITS:
        habits = {id(inputs): trained(inputs, habit) for inputs in case.inputs}
        if matches([habits[id(inputs)] for inputs in case.inputs]):
            return habit.cause
    return UPDATE


def _partial(case: Case, seen: Observation, right: list[list[list[Tensor]]]) -> str:
    """After the first step: are some elements updated, and the others as they were?"""
    updated, untouched, other = [], [], 0
    for inputs, result, of_rank in zip(case.inputs, seen.results, right, strict=True):
        got, want, start = (
            torch.cat([one.reshape(-1).double() for one in all_of])
            for all_of in (result["after"][0], of_rank[0], inputs["parameters"])
        )
        slack = slack_of(want, inputs["parameters"][0].dtype)
        done, left = (got - want).abs() <= slack, (got - start).abs() <= 1e-9
        updated.append(done)
        untouched.append(left & ~done)
        other += int((~done & ~left).sum())
    if other or not any(one.any() for one in untouched):
        return ""
    if all(torch.equal(one, updated[0]) for one in updated):
        return "Some elements are never updated, on any rank: does the last shard end too early, or is one never sent?"
    return "A rank has its own part updated, and the others' parts as they were: their updates never arrive."


def most_states(sizes: list[int], ranks: int) -> int:
    """The most bytes of states a rank may hold: cut by whole parameters, or each padded; and step counters."""
    return 8 * (-(-sum(sizes) // ranks) + max(*sizes, len(sizes))) + 64 * len(sizes)


def _states(case: Case, seen: Observation) -> str | None:
    numel, ranks = sum(tensor.numel() for tensor in case.inputs[0]["parameters"]), case.ranks
    for rank, result in enumerate(seen.results):
        held = result["states"]
        if held > case.inputs[0]["most"]:
            numbers = f"{held / (8 * numel / ranks):.2g} times its share"
            if not case.hidden:
                numbers = f"{held:,} bytes; its share is 8 · ⌈{numel:,} / {ranks}⌉ = {8 * -(-numel // ranks):,}"
            cause = (
                "That is all of AdamW's states, on every rank: make them for this rank's shard only."
                if held > 7 * numel
                else "Are both moments sharded, and nothing else of full size kept between steps?"
            )
            return f"After the last step rank {rank} keeps optimizer states of {numbers}. {cause}"
    return None


def _once(case: Case, seen: Observation) -> str | None:
    numel = sum(tensor.numel() for tensor in case.inputs[0]["parameters"])
    once = (case.ranks - 1) * numel * case.inputs[0]["parameters"][0].element_size()
    for step in range(len(case.inputs[0]["gradients"])):
        made = [
            message
            for rank, result in enumerate(seen.results)
            for message in seen.of_rank(rank)[slice(*result["calls"][step])]
        ]
        sent = sum(message.sent_bytes for message in made)
        if sent > 1.35 * once:
            kinds = sorted({message.kind for message in made if message.sent_bytes})
            cause = (
                "An all-reduce moves everything twice: as a sum of parts filled up with zeros it is dear, and "
                "gradients are averaged before `step()`. Let each rank send its own part (all-gather or broadcast)."
                if "all_reduce" in kinds
                else "Each rank sends the part that it updated, once, to the others."
            )
            return (
                f"In step {step + 1} the ranks send {sent / once:.2g} times what the updates need "
                f"({', '.join(kinds)}). {cause}"
            )
        if sent < 0.9 * once:
            return (
                "Fewer bytes travel in a step than the updates have. Does every rank update all parameters by itself, "
                "or do updates travel in a narrower dtype?"
            )
    return None


ZERO1 = Exercise(
    id="zero1_adamw",
    lesson=LESSON,
    names=("ShardedAdamW",),
    judgements=(
        Judgement(EQUAL, 2, _equal),
        Judgement(EVERYWHERE, 1, _equal),
        Judgement(STATES, 1, _states, how=True),
        Judgement(ONCE, 1, _once, how=True),
    ),
    cases=zero1_cases,
    drive=drive_zero1,
)
