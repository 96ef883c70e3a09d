"""What the judgements on Zero2 and Zero3 share: batches that differ by rank, and training on one process."""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor, nn

from autograder import compare
from autograder.exercise import Case
from autograder.exercises.common import torch_generator
from autograder.exercises.zero_oracle import HABITS, UPDATE, AdamW, Habit, Settings
from autograder.exercises.zero_ranks import loss_of, make_blocks

#: A micro-batch: inputs and targets.
Batch = tuple[Tensor, Tensor]


class Drawer:
    """Draws cases in which every rank has batches of its own."""

    def __init__(self, rng: random.Random):
        self.rng, self.generator = rng, torch_generator(rng)

    def case(
        self,
        name: str,
        ranks: int,
        spec: Sequence[tuple],
        judgements: tuple[str, ...],
        *,
        steps: int = 1,
        micro_batches: int = 1,
        options: dict[str, Any] | None = None,
        members: list[list[int]] | None = None,
        dtype: torch.dtype = torch.float64,
        hidden: bool = False,
        **more: Any,
    ) -> Case:
        """A case; ``more`` travels along as it is. Weights come from a seed, one for each process group."""
        seeds = [self.rng.getrandbits(40) for _ in members or [0]]
        teams = members or [list(range(ranks))]
        seed_of = {rank: seed for seed, team in zip(seeds, teams, strict=True) for rank in team}
        inputs = [
            {
                "spec": list(spec),
                "seed": seed_of[rank],
                "dtype": dtype,
                "steps": [[self.batch(spec, dtype, rank) for _ in range(micro_batches)] for _ in range(steps)],
                "options": options or {},
                "members": members,
                **more,
            }
            for rank in range(ranks)
        ]
        return Case(name, inputs, judgements, {}, hidden=hidden, deadline_seconds=8.0)

    def batch(self, spec: Sequence[tuple], dtype: torch.dtype, rank: int) -> Batch:
        """Three samples. Even and odd ranks' inputs have another sign, so that some layers see only some ranks."""
        kind, *sizes = spec[0]
        width = next(sizes[-1] for _, *sizes in reversed(spec) if sizes)
        target = torch.randn(3, width, generator=self.generator, dtype=torch.float64).to(dtype)
        if kind == "embedding":
            return torch.randint(0, sizes[0], (3,), generator=self.generator), target
        x = torch.randn(3, sizes[0], generator=self.generator, dtype=torch.float64)
        return (x + (0.7 if rank % 2 else -0.7)).to(dtype), target


@dataclass
class Training:
    """What training on one process gives.

    Attributes:
        start: the weights before the first step.
        outputs: by rank, of each micro-batch in turn.
        gradients: by step, then by parameter: the mean over the ranks; zeros where there is none.
        last: the same from the last micro-batch of each step alone.
        local: by rank, as ``gradients``, from the rank's own micro-batches alone.
        weights: by step, then by parameter, after the step.
        states: the state dicts before the first step and after the last one.
    """

    start: list[Tensor] = field(default_factory=list)
    outputs: dict[int, list[Tensor]] = field(default_factory=dict)
    gradients: list[list[Tensor]] = field(default_factory=list)
    last: list[list[Tensor]] = field(default_factory=list)
    local: dict[int, list[list[Tensor]]] = field(default_factory=dict)
    weights: list[list[Tensor]] = field(default_factory=list)
    states: list[dict[str, Tensor]] = field(default_factory=list)
    blocks: nn.Sequential | None = None


def train(case: Case, team: Sequence[int], habit: Habit | None = None) -> Training:
    """Train on the batches of all ranks of ``team`` in one process; the case remembers what came out."""
    key = (tuple(team), habit)
    if key not in case.expected:
        case.expected[key] = _train(case, team, habit)
    return case.expected[key]


def _train(case: Case, team: Sequence[int], habit: Habit | None) -> Training:
    first = case.inputs[team[0]]
    blocks = make_blocks(first["spec"], first["seed"], first["dtype"])
    parameters = list(blocks.parameters())
    optimizer = AdamW(parameters, [Settings(**first["options"])] * len(parameters), habit)
    training = Training(
        start=[parameter.detach().clone() for parameter in parameters],
        outputs={rank: [] for rank in team},
        local={rank: [] for rank in team},
        blocks=blocks,
        states=[copied(blocks)],
    )
    for step in range(len(first["steps"])):
        zeros = [torch.zeros_like(parameter) for parameter in parameters]
        mean, last = list(zeros), list(zeros)
        for rank in team:
            own = list(zeros)
            micro_batches = case.inputs[rank]["steps"][step]
            for batch in micro_batches:
                out, loss = loss_of(blocks, batch, len(micro_batches))
                found = torch.autograd.grad(loss, parameters, allow_unused=True)
                part = [zero if one is None else one for one, zero in zip(found, zeros, strict=True)]
                own = [one + other for one, other in zip(own, part, strict=True)]
                training.outputs[rank].append(out.detach().clone())
            training.local[rank].append(own)
            mean = [one + other / len(team) for one, other in zip(mean, own, strict=True)]
            last = [one + other / len(team) for one, other in zip(last, part, strict=True)]
        training.gradients.append(mean)
        training.last.append(last)
        optimizer.step(mean)
        with torch.no_grad():
            for parameter, weight in zip(parameters, optimizer.weights, strict=True):
                parameter.copy_(weight)
        training.weights.append([parameter.detach().clone() for parameter in parameters])
    training.states.append(copied(blocks))
    return training


def copied(blocks: nn.Module) -> dict[str, Tensor]:
    """Its state dict, in memory of its own."""
    return {key: value.clone() for key, value in blocks.state_dict().items()}


def teams_of(case: Case) -> list[list[int]]:
    """The process groups of a case."""
    return case.inputs[0]["members"] or [list(range(case.ranks))]


def slack_for(want: Tensor) -> Tensor:
    """How far sums in another order may lead away, after some steps of AdamW."""
    coarse = 2e-9 if want.dtype == torch.float64 else 2e-5
    return (want.double().abs() + 1) * coarse


def wrong_weights(
    got: Sequence[Sequence[Tensor]],
    want: Sequence[Tensor],
    names: Sequence[str],
    numbers: Sequence[int],
    what: str,
    hidden: bool,
    cause: str,
) -> str | None:
    """A sentence on the first parameter that is wrong on some rank; ``got`` is by rank, then by parameter."""
    for place, right in enumerate(want):
        ours = [of_rank[place] for of_rank in got]
        problem = compare.explain(
            [right] * len(ours),
            ours,
            what=what.format(names[place]),
            numbers=numbers,
            slack=[slack_for(right)] * len(ours),
            hidden=hidden,
            known_cause=cause,
        )
        if problem:
            return problem
    return None


def habit_of(case: Case, team: Sequence[int], got: Sequence[Tensor], step: int) -> str:
    """The likeliest cause of wrong weights after a step, counted from 0."""
    if all(map(_close, got, train(case, team).start)):
        return "The weights never change: is the updated shard never sent to the others, or not what `forward` uses?"
    for habit in HABITS:
        if all(map(_close, got, train(case, team, habit).weights[step])):
            return habit.cause
    return UPDATE


def _close(have: Tensor, want: Tensor) -> bool:
    return compare.close(have, want, slack_for(want))
