"""Collectives by hand: how an answer is driven in the ranks, and what their judgements share."""

from __future__ import annotations

import random
from collections.abc import Sequence
from types import SimpleNamespace
from typing import Any

import torch
from torch import Tensor

from autograder import compare
from autograder.exercise import Case
from autograder.exercises.common import bring_home, line_of, pause, torch_generator
from rankzero.observe.observation import Observation

# -- in the rank: shipped there by value --------------------------------------------------------------------


def made(recipe: Any) -> Tensor:
    """A tensor of a case: itself, or drawn from a seed where it is too large to be sent to the ranks."""
    if isinstance(recipe, torch.Tensor):
        return recipe
    generator = torch.Generator().manual_seed(recipe["seed"])
    return torch.randn(recipe["numel"], generator=generator)


def laid_out(tensor: Tensor, layout: str) -> Tensor:
    """A copy of ``tensor`` in memory of its own: plain, as every third element of a buffer, or transposed."""
    if layout == "column":
        view = tensor.new_zeros((*tensor.shape, 3))[..., 1]
    elif layout == "transposed":
        view = tensor.new_zeros(tuple(reversed(tensor.shape))).permute(*reversed(range(tensor.dim())))
    else:
        view = torch.empty_like(tensor, memory_format=torch.contiguous_format)
    return view.copy_(tensor)


def drive_collective(call, inputs: dict[str, Any]) -> list[dict[str, Any]]:
    """Call once per tensor; per call, what came back and what the tensor holds then."""
    seen = []
    for recipe in inputs["tensors"]:
        tensor = laid_out(made(recipe), inputs["layout"])
        pause(inputs)
        returned = call(tensor)
        seen.append({"returned": bring_home(returned), "tensor": tensor.clone()})
    return seen


def drive_broadcast(answers: SimpleNamespace, inputs: dict[str, Any]) -> Any:
    if inputs["src"] is None:
        return drive_collective(answers.broadcast, inputs)
    return drive_collective(lambda tensor: answers.broadcast(tensor, inputs["src"]), inputs)


def drive_all_gather(answers: SimpleNamespace, inputs: dict[str, Any]) -> Any:
    return drive_collective(answers.all_gather, inputs)


def drive_reduce_scatter(answers: SimpleNamespace, inputs: dict[str, Any]) -> Any:
    return drive_collective(answers.reduce_scatter, inputs)


def drive_ring(answers: SimpleNamespace, inputs: dict[str, Any]) -> Any:
    return drive_collective(answers.ring_all_reduce, inputs)


# -- on the judge's side ----------------------------------------------------------------------------------


def collective_case(
    name: str,
    tensors: Sequence[Sequence[Any]],
    judgements: tuple[str, ...],
    *,
    src: int | None = None,
    layout: str = "plain",
    late: str = "",
    hidden: bool = False,
    deadline_seconds: float = 3.0,
) -> Case:
    """A case from the tensors of each rank. ``late``: "last" ranks or "first" ranks arrive late."""
    n = len(tensors)
    waits = {"": [0] * n, "last": list(range(n)), "first": list(reversed(range(n)))}[late]
    inputs = [
        {"tensors": list(mine), "src": src, "layout": layout, "sleep_seconds": 0.025 * wait}
        for mine, wait in zip(tensors, waits, strict=True)
    ]
    return Case(name, inputs, judgements, hidden=hidden, deadline_seconds=deadline_seconds)


def digits(n: int, *shape: int, dtype: torch.dtype = torch.float64) -> list[list[Tensor]]:
    """Rank r holds 10**r everywhere."""
    return [[torch.full(shape, 10**rank, dtype=dtype)] for rank in range(n)]


class Drawer:
    """Draws tensors that differ by rank and by element."""

    def __init__(self, rng: random.Random) -> None:
        self.rng = rng
        self.generator = torch_generator(rng)

    def tensors(self, n: int, *shape: int, dtype: torch.dtype = torch.float32, calls: int = 1) -> list[list[Tensor]]:
        return [[self.one(rank, shape, dtype) for _ in range(calls)] for rank in range(n)]

    def one(self, rank: int, shape: tuple[int, ...], dtype: torch.dtype) -> Tensor:
        if dtype.is_floating_point:
            return (torch.randn(shape, generator=self.generator) + 0.5 * rank).to(dtype)
        return torch.randint(1, 10**6, shape, generator=self.generator, dtype=dtype)

    def seeds(self, n: int, numel: int) -> list[list[dict[str, int]]]:
        return [[{"seed": self.rng.getrandbits(48), "numel": numel}] for _ in range(n)]


def calls_of(case: Case):
    """Per call of a case, its number and the tensors that the ranks put in."""
    for call in range(len(case.inputs[0]["tensors"])):
        yield call, [made(inputs["tensors"][call]) for inputs in case.inputs]


def hints(case: Case, seen: Observation) -> dict[str, Any]:
    """What :func:`compare.explain` needs to know about a case and its messages."""
    return {
        "hidden": case.hidden,
        "digits": "10**r" in case.name,
        "staggered": any(inputs["sleep_seconds"] for inputs in case.inputs),
        "known_cause": slips(case, seen),
    }


def input_changed(case: Case, seen: Observation, name: str) -> str | None:
    for call, local in calls_of(case):
        for rank, mine in enumerate(local):
            held = seen.results[rank][call]["tensor"]
            if compare.misfit(held, mine, "") or not torch.equal(held, mine):
                return (
                    f"On rank {rank} the input is changed after `{name}`: it has to stay as it was. "
                    "Work on a copy (`tensor.clone()`)."
                )
    return None


def only_returned(seen: Observation, call: int, want: list[Tensor], local: list[Tensor], slack: list) -> str | None:
    """A sentence if the right tensors were returned while the given ones were left as they were."""
    by_rank = [result[call] for result in seen.results]
    changed = [place for place, mine in enumerate(local) if not compare.close(want[place], mine, slack[place])]
    lost = [
        rank
        for rank in changed
        if compare.close(by_rank[rank]["tensor"], local[rank])
        and isinstance(by_rank[rank]["returned"], Tensor)
        and compare.close(by_rank[rank]["returned"], want[rank], slack[rank])
    ]
    if not lost:
        return None
    return (
        f"Rank {lost[0]} returned the right tensor, but the tensor that was handed in is unchanged. "
        "The result belongs "
        "into it: end with `tensor.copy_(result)` (`tensor = result` only renames)."
    )


def slips(case: Case, seen: Observation) -> str:
    """What the messages of a wrong result tell for certain: a recv not waited for, or into another dtype."""
    dtype = compare.dtype_name(made(case.inputs[0]["tensors"][0]))
    for message in seen.messages:
        if message.kind == "recv" and message.done_seconds is None:
            return (
                f"Rank {message.rank} never waited for its recv{line_of(message)}: call `wait()` on what it returned."
            )
        if message.kind == "recv" and message.dtype != dtype:
            buffer = f"a {message.dtype} buffer{line_of(message)}"
            return f"Rank {message.rank} receives into {buffer}, but the tensor is {dtype}."
    return ""


def exact_sum(parts: list[Tensor]) -> Tensor:
    """The sum, rounded only once, in the parts' dtype."""
    if not parts[0].is_floating_point():
        return sum(parts)
    return sum(part.double() for part in parts).to(parts[0].dtype)
