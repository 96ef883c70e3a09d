"""What HandDDP is compared with: training on one process on the batches of all ranks; and its cases are drawn here."""

from __future__ import annotations

import random
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor

from autograder.exercise import Case
from autograder.exercises.common import torch_generator
from autograder.exercises.ddp_ranks import loss_of, make_model

#: How micro-batches are run, and which of them no_sync() covers: whole, at backward only, at forward only.
SYNC, INSIDE, BACKWARD_INSIDE, FORWARD_INSIDE = "sync", "inside", "backward inside", "forward inside"
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
        spec: tuple,
        judgements: tuple[str, ...],
        *,
        steps: int = 2,
        modes: tuple[str, ...] = (SYNC,),
        signs: list[list[list[int]]] | None = None,
        cap_bytes: int | None = None,
        late: bool = False,
        alike: bool = True,
        to_none: bool = True,
        keywords: dict[str, Any] | None = None,
        hidden: bool = False,
    ) -> Case:
        """A case.

        Args:
            signs: by step, rank and micro-batch, the sign of the batch; it decides which branch is taken.
            cap_bytes: of a bucket; None leaves it at HandDDP's default.
            late: the higher its rank, the later it comes to backward.
            alike: whether all ranks' models are made from one seed.
        """
        seed = self.rng.getrandbits(40)
        width = spec[1]
        inputs = []
        for rank in range(ranks):
            batches = [
                [self.batch(width, signs[step][rank][place] if signs else 0, spec[2:]) for place, _ in enumerate(modes)]
                for step in range(steps)
            ]
            inputs.append(
                {
                    "spec": spec,
                    "seed": seed if alike else seed + 100 * rank,
                    "steps": batches,
                    "modes": modes,
                    "options": {} if cap_bytes is None else {"bucket_cap_bytes": cap_bytes},
                    "lr": 0.1,
                    "to_none": to_none,
                    "keywords": keywords or {},
                    "sleep_seconds": 0.04 * rank if late else 0.0,
                }
            )
        return Case(name, inputs, judgements, {}, hidden=hidden, deadline_seconds=6.0)

    def batch(self, width: int, sign: int, dtype: tuple) -> Batch:
        """Four samples, all positive or all negative where a sign is given."""
        x, y = torch.randn(2, 4, width, generator=self.generator, dtype=torch.float64)
        x = x if not sign else x.abs() * sign
        wanted = getattr(torch, dtype[0]) if dtype else torch.float64
        return x.to(wanted), y.to(wanted)


@dataclass
class Training:
    """What training on one process gives.

    Attributes:
        gradients: by step, then by parameter, the mean over the ranks; None where no rank has a gradient.
        local: by step, then by parameter, a list by rank of its own gradient, None where it has none.
        last: as ``local``, from the last micro-batch alone.
        out: by rank, what the last micro-batch of the first step gave.
        weights: after the last step.
    """

    gradients: list[list[Tensor | None]] = field(default_factory=list)
    local: list[list[list[Tensor | None]]] = field(default_factory=list)
    last: list[list[list[Tensor | None]]] = field(default_factory=list)
    out: list[Tensor] = field(default_factory=list)
    weights: list[Tensor] = field(default_factory=list)


def train(case: Case) -> Training:
    """Train in one process on the batches of all ranks; the case remembers what came out."""
    if "training" not in case.expected:
        case.expected["training"] = _train(case)
    return case.expected["training"]


def _train(case: Case) -> Training:
    first = case.inputs[0]
    model = make_model(first["spec"], first["seed"])
    parameters = list(model.parameters())
    training = Training()
    for step in range(len(first["steps"])):
        local: list[list[Tensor | None]] = [[] for _ in parameters]
        last: list[list[Tensor | None]] = [[] for _ in parameters]
        for inputs in case.inputs:
            own: list[Tensor | None] = [None] * len(parameters)
            micro_batches = inputs["steps"][step]
            for batch in micro_batches:
                out, loss = loss_of(model, batch, len(micro_batches), inputs["keywords"])
                found = _gradients(loss, parameters)
                own = [_sum(one, other) for one, other in zip(own, found, strict=True)]
            if step == 0:
                training.out.append((out[0] if isinstance(out, tuple) else out).detach().clone())
            for place in range(len(parameters)):
                local[place].append(own[place])
                last[place].append(found[place])
        mean = [mean_of(of_ranks) for of_ranks in local]
        training.gradients.append(mean)
        training.local.append(local)
        training.last.append(last)
        with torch.no_grad():
            for parameter, gradient in zip(parameters, mean, strict=True):
                if gradient is not None:
                    parameter.sub_(first["lr"] * gradient)
    training.weights = [parameter.detach().clone() for parameter in parameters]
    return training


def _gradients(loss: Tensor, parameters: list[Tensor]) -> list[Tensor | None]:
    trained = [parameter for parameter in parameters if parameter.requires_grad]
    found = iter(torch.autograd.grad(loss, trained, allow_unused=True))
    return [next(found) if parameter.requires_grad else None for parameter in parameters]


def _sum(one: Tensor | None, other: Tensor | None) -> Tensor | None:
    if one is None or other is None:
        return one if other is None else other
    return one + other


def mean_of(gradients: list[Tensor | None]) -> Tensor | None:
    """The mean over the ranks, where a missing gradient counts as zero; None if all are missing."""
    some = [gradient.double() for gradient in gradients if gradient is not None]
    if not some:
        return None
    first = next(gradient for gradient in gradients if gradient is not None)
    return (sum(some) / len(gradients)).to(first.dtype)
