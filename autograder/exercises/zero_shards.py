"""Zero3's gradient shards, however an answer cuts them: by block or by parameter, padded or not."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from autograder import compare
from autograder.exercises.zero_training import Training, slack_for


def missing_blocks(got: list[Tensor], want: list[Tensor], units: list[list[int]], lists: list[list[Any]]) -> str:
    """Whether whole blocks have no gradient, or a wrong one while the others are right."""
    wrong = []
    begin = [0] * len(lists)
    for number in range(len(units)):
        ends = [start + size_of(shards[number]) for start, shards in zip(begin, lists, strict=True)]
        pairs = [(one[a:b], other[a:b]) for one, other, a, b in zip(got, want, begin, ends, strict=True)]
        if not all(near(one, other) for one, other in pairs):
            wrong.append((number, all(not one.any() for one, _ in pairs)))
        begin = ends
    if wrong and len(wrong) < len(units) and all(empty for _, empty in wrong):
        which = ", ".join(str(number) for number, _ in wrong)
        return (
            f"The gradients of shard {which} are missing (all zero): are the first block's, or the last one's, never "
            "reduced?"
        )
    return ""


def units_of(training: Training, lists: list[list[Any]]) -> list[list[int]] | None:
    """What each tensor of ``gradient_shards()`` is a shard of, as places of parameters: by block, or by parameter."""
    of_block, begin, known = [], 0, {}
    for block in training.blocks:
        fresh = [p for p in block.parameters() if id(p) not in known]
        known.update(dict.fromkeys(map(id, fresh)))
        of_block.append(list(range(begin, begin + len(fresh))))
        begin += len(fresh)
    choices = [of_block, [unit for unit in of_block if unit], [[place] for place in range(begin)]]
    sizes = [gradient.numel() for gradient in training.gradients[0]]
    for units in choices:
        if all(len(shards) == len(units) for shards in lists) and all(
            sum(sizes[place] for place in unit) <= sum(size_of(shards[number]) for shards in lists)
            for number, unit in enumerate(units)
        ):
            return units
    return None


def size_of(shard: Any) -> int:
    """The elements of a shard; 0 if it is none."""
    return shard.numel() if isinstance(shard, Tensor) else 0


def cut_alike(gradients: list[Tensor], units: list[list[int]], lists: list[list[Any]]) -> list[Tensor]:
    """The right gradients, cut as the answer's shards are, by rank."""
    by_rank: list[list[Tensor]] = [[] for _ in lists]
    for number, unit in enumerate(units):
        whole = torch.cat([gradients[place].reshape(-1) for place in unit]) if unit else gradients[0].new_zeros(0)
        begin = 0
        for rank, shards in enumerate(lists):
            piece = whole[begin : begin + size_of(shards[number])]
            by_rank[rank].append(torch.cat([piece, piece.new_zeros(size_of(shards[number]) - piece.numel())]))
            begin += size_of(shards[number])
    return [torch.cat(pieces) for pieces in by_rank]


def joined(shards: list[Any], like: Tensor) -> Tensor:
    """A rank's shards, one after the other."""
    flat = [shard.reshape(-1) for shard in shards if isinstance(shard, Tensor)]
    return torch.cat(flat) if flat else like.new_zeros(0)


def near(have: Any, want: Tensor) -> bool:
    """Whether two tensors agree, but for the order of sums."""
    return isinstance(have, Tensor) and have.shape == want.shape and compare.close(have, want, slack_for(want) * 10)
