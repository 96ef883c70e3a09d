"""Exercise reshard: shards for another world size."""

from __future__ import annotations

import random
from types import SimpleNamespace
from typing import Any

import torch
from torch import Tensor

from autograder import compare
from autograder.exercise import Case, Exercise, Judgement
from autograder.exercises.common import bring_home, torch_generator
from autograder.exercises.zero_pieces import flat_of
from rankzero.observe.observation import Observation

LESSON = "06_zero"

# -- in the rank: shipped there by value ----------------------------------------------------------------------


def drive_reshard(answers: SimpleNamespace, inputs: dict[str, Any]) -> list[Any]:
    """Cut weights and states again for each world size in turn, and train on each for some steps."""
    numel, kept = inputs["numel"], [[shard.clone() for shard in shards] for shards in inputs["shards"]]
    seen: list[Any] = []
    for world_size, gradients in zip(inputs["world_sizes"], inputs["gradients"], strict=True):
        before = [[shard.clone() for shard in shards] for shards in kept]
        made = [answers.reshard(list(shards), numel, world_size) for shards in kept]
        made = [list(shards) if isinstance(shards, (list, tuple)) else shards for shards in made]
        changed = any(
            not torch.equal(one, other)
            for ones, others in zip(kept, before, strict=True)
            for one, other in zip(ones, others, strict=True)
        )
        fits = all(is_cut(shards, numel, world_size) for shards in made)
        record = [[bring_home(shard) for shard in shards] if isinstance(shards, list) else None for shards in made]
        seen.append({"made": record, "changed": changed})
        if not fits:
            break
        # Adam, shard by shard: all that matters here is that each element meets its own states.
        kept = [[shard.clone() for shard in shards] for shards in made]
        for gradient in gradients:
            padded = torch.cat([gradient, gradient.new_zeros(-numel % world_size)]).view(world_size, -1)
            for rank in range(world_size):
                adam_in_place(*(shards[rank] for shards in kept), padded[rank])
    return seen


def is_cut(shards: Any, numel: int, world_size: int) -> bool:
    """Whether these are ``world_size`` flat shards of the right length."""
    if not isinstance(shards, list) or len(shards) != world_size:
        return False
    shape = (-(-numel // world_size),)
    return all(isinstance(shard, torch.Tensor) and tuple(shard.shape) == shape for shard in shards)


def adam_in_place(weight: Tensor, first: Tensor, second: Tensor, gradient: Tensor) -> None:
    """An Adam without bias correction."""
    first.mul_(0.9).add_(0.1 * gradient)
    second.mul_(0.99).add_(0.01 * gradient * gradient)
    weight.sub_(0.01 * first / (second.sqrt() + 1e-6))


# -- on the judge's side ----------------------------------------------------------------------------------

CUT, ONWARDS = "4 → 2 → 3: the same elements, padding made anew", "states too, and training goes on"


def reshard_cases(rng: random.Random) -> list[Case]:
    generator = torch_generator(rng)

    def case(name: str, numel: int, worlds: tuple[int, ...], judgement: str, dtype=torch.float64, hidden=False) -> Case:
        first, *others = worlds
        lists = [torch.randn(numel, generator=generator).to(dtype) for _ in range(3 if judgement == ONWARDS else 1)]
        if judgement == ONWARDS:
            lists[2] = lists[2].abs() + 0.1
        padding = -numel % first
        shards = [list(torch.cat([one, one.new_full((padding,), 7.0)]).view(first, -1).clone()) for one in lists]
        steps = 2 if judgement == ONWARDS else 0
        gradients = [[torch.randn(numel, generator=generator).to(dtype) for _ in range(steps)] for _ in others]
        inputs = {"shards": shards, "numel": numel, "world_sizes": others, "gradients": gradients}
        return Case(name, [inputs], (judgement,), lists, hidden=hidden)

    odd = rng.randint(40, 120) * 12 + rng.choice([1, 5, 7, 11])
    return [
        case("13 elements, 4 → 2 → 3", 13, (4, 2, 3), CUT),
        case("12 elements, 4 → 2 → 3", 12, (4, 2, 3), CUT),
        case("5 elements, 1 → 4 → 1", 5, (1, 4, 1), CUT),
        case("2 elements, 2 → 5", 2, (2, 5), CUT, dtype=torch.float32),
        case("113 elements and their states, 4 → 2 → 3", 113, (4, 2, 3), ONWARDS),
        case("other lengths", odd, (4, 3, 8, 2), CUT, hidden=True),
        case("bfloat16, 3 → 7", 22, (3, 7), CUT, dtype=torch.bfloat16, hidden=True),
        case("other lengths and their states, 4 → 2 → 3 → 4", odd + 6, (4, 2, 3, 4), ONWARDS, hidden=True),
    ]


def _reshard(case: Case, seen: Observation) -> str | None:
    inputs, numel = case.inputs[0], case.inputs[0]["numel"]
    now = [one.clone() for one in case.expected]
    world_before = len(inputs["shards"][0])
    for hop, world_size in enumerate(inputs["world_sizes"]):
        result = seen.results[0][hop]
        where = "" if case.hidden else f" ({world_before} → {world_size} ranks, {numel} elements)"
        for got, want in zip(result["made"], now, strict=True):
            if problem := _wrong_cut(got, flat_of([want], world_size).view(world_size, -1), numel, where):
                return problem
        if result["changed"]:
            return f"`reshard` changes the shards that it is given{where}."
        for gradient in inputs["gradients"][hop]:
            adam_in_place(*now, gradient)
        world_before = world_size
    return None


def _wrong_cut(got: Any, want: Tensor, numel: int, where: str) -> str | None:
    if not isinstance(got, list):
        return f"`reshard` did not return a list of tensors{where}."
    if len(got) != len(want):
        return f"`reshard` returned {len(got)} shards{where}; {len(want)} were expected, one for each rank."
    lengths = [shard.numel() if isinstance(shard, torch.Tensor) else -1 for shard in got]
    if any(length != want.shape[1] for length in lengths) and -1 not in lengths:
        kept = "" if sum(lengths) <= numel else " Is the old padding kept? Drop it first, then cut and pad anew."
        wanted = "each should have ⌈numel / world_size⌉, the last ones padded"
        return f"The shards have {lengths} elements{where}; {wanted}.{kept}"
    for rank, (shard, right) in enumerate(zip(got, want, strict=True)):
        if problem := compare.misfit(shard, right, f"As shard {rank} `reshard` returned"):
            return problem
    whole, right = torch.cat(got), want.reshape(-1)
    # Training in between rounds a little, in its own order.
    slack = 1e-9 * (1 + right.abs()) if right.dtype == torch.float64 else 0.0
    if compare.close(whole, right, slack):
        return None
    if compare.close(whole[:numel], right[:numel], 1e-9):
        return f"The padding is not zero{where}: make it anew; what the old one held must not come back."
    return f"The shards hold other elements{where}. Put the old ones together, drop their padding, then cut anew."


RESHARD = Exercise(
    id="reshard",
    lesson=LESSON,
    names=("reshard",),
    judgements=(Judgement(CUT, 1, _reshard), Judgement(ONWARDS, 1, _reshard)),
    cases=reshard_cases,
    drive=drive_reshard,
    process_group=False,
)
