"""Exercise epoch_indices: which samples a rank sees in an epoch."""

from __future__ import annotations

import operator
import random
from collections import Counter
from itertools import pairwise
from types import SimpleNamespace
from typing import Any

import torch

from autograder.exercise import Case, Exercise, Judgement
from rankzero.observe.observation import Observation

LESSON = "05_ddp"

PARTS = "every sample on some rank, the same number on each"
DROP = "drop_last: no sample twice"
ORDER = "one common order, another for each epoch and seed"
GENERATOR = "from a generator of its own"

# -- in the rank: shipped there by value ----------------------------------------------------------------------


def drive_samples(answers: SimpleNamespace, inputs: dict[str, Any]) -> list[dict[str, Any]]:
    """Per question the shares of all ranks, twice, with torch's and Python's own generators in other states."""
    seen = []
    for n, world_size, epoch, seed, drop_last in inputs["questions"]:
        shares, again, touched = [], [], False
        for turn, into in enumerate((shares, again)):
            for rank in range(world_size):
                torch.manual_seed(1000 * turn + rank)
                random.seed(1000 * turn + rank)
                before = torch.get_rng_state()
                more = {"drop_last": True} if drop_last else {}
                into.append(_listed(answers.epoch_indices(n, rank, world_size, epoch, seed, **more)))
                touched = touched or not torch.equal(before, torch.get_rng_state())
        seen.append({"shares": shares, "again": again, "touched": touched})
    return seen


def _listed(indices: Any) -> Any:
    """The indices as ints, or the name of the type of what is no list of them."""
    try:
        return [operator.index(index) for index in indices]
    except TypeError:
        return type(indices).__name__


# -- on the judge's side --------------------------------------------------------------------------------------


def samples_cases(rng: random.Random) -> list[Case]:
    def case(name: str, judgements: tuple[str, ...], *questions: tuple, hidden: bool = False) -> Case:
        return Case(name, [{"questions": list(questions)}], judgements, hidden=hidden)

    def epochs(n: int, world_size: int) -> list[tuple]:
        base = rng.randint(10, 10**6)
        return [(n, world_size, epoch, seed, False) for seed in (0, base) for epoch in (0, 1, 2, 7)]

    n = rng.choice([101, 103, 107, 109])
    return [
        case("12 samples, 4 ranks", (PARTS, GENERATOR), (12, 4, 0, 0, False)),
        case("13 samples, 4 ranks", (PARTS, GENERATOR), (13, 4, 1, 3, False)),
        case("2 samples, 5 ranks", (PARTS,), (2, 5, 0, 1, False)),
        case("7 samples, 1 rank", (PARTS,), (7, 1, 2, 1, False)),
        case("drop_last, 13 samples, 4 ranks", (DROP,), (13, 4, 1, 3, True)),
        case("drop_last, 12 samples, 4 ranks", (DROP,), (12, 4, 0, 0, True)),
        case("60 samples, 3 ranks, several epochs and seeds", (ORDER, GENERATOR), *epochs(60, 3)),
        case(
            "other sizes",
            (PARTS,),
            *((size, ranks, rng.randint(0, 9), rng.randint(0, 99), False) for size, ranks in ((n, 6), (n, 8), (15, 7))),
            (3, 8, 1, 5, False),
            hidden=True,
        ),
        case(
            "drop_last, other sizes", (DROP,), (n, 6, 1, 2, True), (n, 8, 0, 5, True), (3, 4, 0, 0, True), hidden=True
        ),
        case("other epochs and seeds", (ORDER, GENERATOR), *epochs(rng.choice([77, 91]), 4), hidden=True),
    ]


def _parts(case: Case, seen: Observation) -> str | None:
    for question, result in zip(case.inputs[0]["questions"], seen.results[0], strict=True):
        n, world_size, _, _, drop_last = question
        if problem := _not_a_cut(n, world_size, drop_last, result):
            return problem
    return None


def _not_a_cut(n: int, world_size: int, drop_last: bool, result: dict[str, Any]) -> str | None:
    shares = result["shares"]
    for rank, share in enumerate(shares):
        if isinstance(share, str):
            return f"Rank {rank} got an object of type {share}; a list of ints was expected."
        if strange := [index for index in share if not 0 <= index < n]:
            return f"Rank {rank} got index {strange[0]}; the {n} samples have the indices 0 to {n - 1}."
    if any(sorted(one) != sorted(other) for one, other in zip(shares, result["again"], strict=True)):
        return (
            "The same call gives other samples the second time: the order comes from a global generator, which is "
            "another on each rank. Make a `torch.Generator` from `seed` and `epoch`."
        )
    counts = Counter(index for share in shares for index in share)
    lengths = [len(share) for share in shares]
    missing = [index for index in range(n) if index not in counts]
    want = n // world_size if drop_last else -(-n // world_size)
    if len(set(lengths)) > 1:
        return (
            f"The ranks get {', '.join(map(str, lengths))} samples: not the same number. In the last step the others "
            f"wait for ever. {_length_hint(n, world_size, drop_last)}"
        )
    if lengths[0] != want:
        cause = _wrong_length(n, want, lengths[0], drop_last)
        return f"Each rank gets {lengths[0]} samples; {want} were expected. {cause}"
    twice = [index for index, count in counts.items() if count > 1]
    if drop_last and twice:
        return f"With `drop_last` sample {twice[0]} is seen twice. {_overlap(shares)}"
    if missing and not drop_last:
        who = f"{len(missing)} of {n} samples are on no rank, such as {missing[0]}, others on several."
        return f"{who} {_overlap(shares)}"
    return None


def _length_hint(n: int, world_size: int, drop_last: bool) -> str:
    if drop_last:
        return "Cut the order to a multiple of the world size first."
    if n < world_size:
        return "Here more padding is needed than there are samples: repeat the list often enough, then cut."
    return "Pad the common order to a multiple of the world size, with samples once more."


def _wrong_length(n: int, want: int, got: int, drop_last: bool) -> str:
    if got == n:
        return "Is the order not cut among the ranks at all?"
    if drop_last:
        return "With `drop_last` what does not divide is left out: ⌊n / world_size⌋ on each rank, no padding."
    if got < want:
        return "The tail is dropped, though `drop_last` is False: pad up to ⌈n / world_size⌉ on each rank."
    return "That is more padding than is needed, ⌈n / world_size⌉ on each rank, or the ranks' shares overlap."


def _overlap(shares: list[list[int]]) -> str:
    if len(shares) > 1 and all(share == shares[0] for share in shares):
        return "All ranks get the same ones: use `rank` to cut the order."
    if len(shares) > 1 and all(one[-1:] == other[:1] for one, other in pairwise(shares)):
        return "The shares overlap by one: a slice ends before its second number."
    return "Does each rank shuffle in its own way (`seed + rank`)? All must cut one common order."


def _order(case: Case, seen: Observation) -> str | None:
    by_seed: dict[int, list[tuple[int, list[list[int]]]]] = {}
    for question, result in zip(case.inputs[0]["questions"], seen.results[0], strict=True):
        n, world_size, epoch, seed, drop_last = question
        if problem := _not_a_cut(n, world_size, drop_last, result):
            return problem
        by_seed.setdefault(seed, []).append((epoch, result["shares"]))
    for of_epochs in by_seed.values():
        for _, shares in of_epochs:
            if any(_even_steps(share, n) for share in shares):
                return "The samples come in the order of their indices: they are not shuffled."
        if of_epochs[0][1] == of_epochs[1][1]:
            return (
                "Epochs 0 and 1 have the same order: `epoch` does not change it, or only for some seeds "
                "(is it multiplied?)."
            )
        first = of_epochs[0][1]
        for epoch, shares in of_epochs[1:]:
            if first == shares:
                return f"Epochs 0 and {epoch} have the same order."
            if all(set(one) == set(other) for one, other in zip(first, shares, strict=True)):
                return (
                    "A rank sees the same samples in every epoch, only in another order: shuffle first, then cut, "
                    "so that samples change ranks."
                )
    seeds = list(by_seed.values())
    for (epoch, one), (_, other) in zip(seeds[0], seeds[1], strict=True):
        if one == other:
            return f"Two seeds give the same order (epoch {epoch}): `seed` does not change it."
    return None


def _even_steps(share: list[int], n: int) -> bool:
    steps = {(after - before) % n for before, after in pairwise(share)}
    return len(share) > 4 and len(steps) <= 2


def _generator(case: Case, seen: Observation) -> str | None:
    for result in seen.results[0]:
        if result["shares"] != result["again"]:
            return (
                "The same call gives another order the second time: it depends on a global generator. Make a "
                "`torch.Generator` from `seed` and `epoch`."
            )
        if result["touched"]:
            return (
                "The call changes torch's global generator, so it changes dropout and every later draw: give "
                "`torch.randperm` a `torch.Generator` of its own."
            )
    return None


EPOCH_INDICES = Exercise(
    id="epoch_indices",
    lesson=LESSON,
    names=("epoch_indices",),
    judgements=(
        Judgement(PARTS, 1, _parts),
        Judgement(DROP, 0.5, _parts),
        Judgement(ORDER, 1, _order),
        Judgement(GENERATOR, 0.5, _generator),
    ),
    cases=samples_cases,
    drive=drive_samples,
    process_group=False,
)
