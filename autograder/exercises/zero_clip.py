"""Exercise clip_sharded: one norm over the shards of all ranks."""

from __future__ import annotations

import math
import random
from typing import Any

import torch
from torch import Tensor

from autograder import compare
from autograder.exercise import Case, Exercise, Judgement
from autograder.exercises.common import line_of, torch_generator
from autograder.exercises.zero_ranks import drive_clip
from rankzero.observe.observation import Observation

LESSON = "06_zero"

NORM = "the norm over all ranks; clipped where it is larger"
SCALAR = "one collective, of one number"


def clip_cases(rng: random.Random) -> list[Case]:
    generator = torch_generator(rng)

    def case(
        name: str, shapes: list[list[tuple[int, ...]]], sizes: list[float], max_norm, dtype=torch.float32, hidden=False
    ):
        """``shapes``: of each rank's shards. ``sizes``: the global norm of each call, over ``max_norm``."""
        calls = []
        for size in sizes:
            drawn = [
                [torch.randn(shape, generator=generator, dtype=torch.float64) for shape in mine] for mine in shapes
            ]
            drawn = [[(1 + rank) * shard for shard in mine] for rank, mine in enumerate(drawn)]
            factor = size * max_norm / (_norm([shard for mine in drawn for shard in mine]) or 1.0)
            calls.append([[(factor * shard).to(dtype) for shard in mine] for mine in drawn])
        inputs = [{"shards": [call[rank] for call in calls], "max_norm": max_norm} for rank in range(len(shapes))]
        return Case(name, inputs, (NORM, SCALAR), hidden=hidden)

    mixed = [0.4, 3.0, 0.9, 1.7, 0.05, 12.0]
    length = rng.randint(3, 9)
    return [
        case("4 ranks, 6 steps, 3 of them clipped", [[(5,)]] * 4, mixed, 1.0),
        case("3 ranks, several shards", [[(4,), (2, 3)], [(5,)], [(1,), (7,)]], mixed[:3], 2.5),
        case("4 ranks, one has no shard", [[(3,)], [], [(2,), (2,)], [(4,)]], mixed[:4], 2),
        case("1 rank", [[(6,), (2,)]], mixed[:2], 0.5),
        case("3 ranks, all gradients zero", [[(3,)]] * 3, [0.0, 2.0], 1.0),
        case(
            "3 ranks, float64, other sizes",
            [[(length,), (3,)], [(2,)], [(length + 4,)]],
            mixed,
            0.7,
            dtype=torch.float64,
            hidden=True,
        ),
        case(
            "4 ranks, two have none",
            [[], [(length,)], [(2, 2)], []],
            [rng.uniform(2, 5), rng.uniform(0.1, 0.9)],
            3.0,
            hidden=True,
        ),
        case("2 ranks", [[(length,)], [(5,)]], [rng.uniform(1.5, 4), rng.uniform(0.2, 0.9)], 1.0, hidden=True),
    ]


def _norm(shards: list[Tensor]) -> float:
    return math.sqrt(sum(shard.double().square().sum().item() for shard in shards))


def _clipped(case: Case, seen: Observation) -> str | None:
    max_norm = case.inputs[0]["max_norm"]
    for call in range(len(case.inputs[0]["shards"])):
        before = [inputs["shards"][call] for inputs in case.inputs]
        norm = _norm([shard for mine in before for shard in mine])
        scale = min(1.0, max_norm / norm) if norm else 1.0
        results = [result[call] for result in seen.results]
        got = [result["norm"] for result in results]
        for rank, value in enumerate(got):
            if not isinstance(value, float):
                return f"Rank {rank} returned {compare.describe(value)}; the norm was expected, as a float."
            if not abs(value - norm) <= 3e-5 * norm + 1e-9:
                shown = "a wrong norm" if case.hidden else f"{value:.6g}; the norm over all ranks is {norm:.6g}"
                return f"Rank {rank} returned {shown}. {_norm_cause(got, before, max_norm, norm)}".strip()
        for rank, (result, mine) in enumerate(zip(results, before, strict=True)):
            for shard, start in zip(result["shards"], mine, strict=True):
                if problem := compare.misfit(shard, start, f"Rank {rank} has as a shard"):
                    return problem
                want = start.double() * scale
                if not compare.close(shard, want, 3e-5 * want.abs() + 1e-9):
                    cause = _own_factors(results, before, max_norm) or _scale_cause(shard, start, norm, max_norm)
                    return f"Rank {rank}'s shards are wrong after the call. {cause}"
    return None


def _norm_cause(got: list[float], before: list[list[Tensor]], max_norm: float, norm: float) -> str:
    local = [_norm(mine) for mine in before]

    def all_near(wanted: list[float]) -> bool:
        return all(
            math.isclose(value, want, rel_tol=3e-5, abs_tol=1e-9) for value, want in zip(got, wanted, strict=True)
        )

    n = len(local)
    known = (
        (local, "That is the norm of the rank's own shards: their squares were not summed over the ranks."),
        ([sum(local)] * n, "That is the sum of the ranks' norms; add the squares, and take the root of the sum."),
        ([norm * norm] * n, "That is the square of the norm: the root is missing."),
        ([norm / n] * n, "That is the norm divided by the number of ranks."),
        ([norm / math.sqrt(n)] * n, "That is the root of the *mean* of the squares over the ranks: sum them."),
        ([min(norm, max_norm)] * n, "That is the norm after clipping; return the one before."),
        ([max(local)] * n, "That is the largest of the ranks' norms; add the squares of all."),
        ([max_norm] * n, "That is `max_norm`; return the norm before clipping."),
    )
    return next((cause for wanted, cause in known if all_near(wanted)), "")


def _scale_cause(shard: Tensor, start: Tensor, norm: float, max_norm: float) -> str:
    if compare.close(shard, start, 1e-12):
        return "They are as they were: scale them in place (`shard.mul_(…)`); `shard = shard * …` makes a new tensor."
    if 0 < norm < max_norm and compare.close(
        shard, start.double() * (max_norm / norm), 1e-4 * start.double().abs() * max_norm / norm
    ):
        return "They are scaled *up* to `max_norm`; a norm that is smaller stays as it is."
    if not torch.isfinite(shard).all():
        return "They are not finite: a norm of zero must not be divided by."
    if norm and compare.close(shard, start.double() / norm, 1e-4 * start.double().abs() / norm):
        return "They are scaled to a norm of 1, not of `max_norm`."
    return "The factor is max_norm / norm where the norm is larger than max_norm, else 1, the same on all ranks."


def _own_factors(results: list[dict[str, Any]], before: list[list[Tensor]], max_norm: float) -> str:
    """Whether every rank scaled by the norm of its own shards."""
    for result, mine in zip(results, before, strict=True):
        own = _norm(mine)
        factor = max_norm / own if own > max_norm else 1.0
        for shard, start in zip(result["shards"], mine, strict=True):
            want = start.double() * factor
            if not compare.close(shard, want, 3e-5 * want.abs() + 1e-9):
                return ""
    return "They are scaled by the norm of the rank's own shards; all ranks need the same factor."


def _scalar(case: Case, seen: Observation) -> str | None:
    for rank, result in enumerate(seen.results):
        for call in result:
            made = [message for message in seen.of_rank(rank)[slice(*call["calls"])] if message.kind != "barrier"]
            if len(made) > 1:
                kinds = ", ".join(message.kind for message in made[:4])
                return (
                    f"Rank {rank} makes {len(made)} collectives in one call ({kinds}{line_of(made[1])}); one is "
                    "enough: add up the squares of all its shards first."
                )
            if made and made[0].bytes > 16:
                return (
                    f"Rank {rank} sends {made[0].bytes} bytes ({made[0].kind}{line_of(made[0])}). One number is "
                    "enough: the sum of its squares."
                )
    return None


CLIP = Exercise(
    id="clip_sharded",
    lesson=LESSON,
    names=("clip_grad_norm_sharded",),
    judgements=(Judgement(NORM, 0.5, _clipped), Judgement(SCALAR, 0.5, _scalar, how=True)),
    cases=clip_cases,
    drive=drive_clip,
)
