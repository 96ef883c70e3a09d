"""Lesson 04, broadcast to ring all-reduce: the collectives from send and recv, α–β, and the quiz."""

from __future__ import annotations

import math
import random
from collections.abc import Sequence
from types import SimpleNamespace
from typing import Any

import torch
from torch import Tensor

from autograder import compare
from autograder.exercise import Case, Exercise, Judgement, Question, Quiz
from autograder.exercises.common import (
    as_number,
    bring_home,
    library_call,
    line_of,
    not_neighbours,
    pause,
    quiz_cases,
    quiz_drive,
    quiz_judgements,
    share,
    too_many_bytes,
    torch_generator,
)
from rankzero.observe.observation import Observation

LESSON = "04_collectives"

# -- the four collectives: how they are driven --------------------------------------------------------------


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
        seen.append({"returned": None if returned is tensor else bring_home(returned), "tensor": tensor.clone()})
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


# -- the four collectives: their cases and verdicts ------------------------------------------------------------


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
        for mine, wait in zip(tensors, waits)
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


def hints(case: Case) -> dict[str, bool]:
    """What :func:`compare.explain` needs to know about a case."""
    return {
        "hidden": case.hidden,
        "digits": "10**r" in case.name,
        "staggered": any(inputs["sleep_seconds"] for inputs in case.inputs),
    }


def input_changed(case: Case, seen: Observation, name: str) -> str | None:
    for call, local in calls_of(case):
        for rank, mine in enumerate(local):
            if not torch.equal(seen.results[rank][call]["tensor"], mine):
                return (
                    f"On rank {rank} the input is changed after `{name}`: it has to stay as it was. "
                    "Work on a copy (`tensor.clone()`)."
                )
    return None


def in_place_results(case: Case, seen: Observation, call: int, want: list[Tensor], local: list[Tensor], slack) -> str | None:
    """A sentence if the right tensors were returned while the given ones were left as they were."""
    by_rank = [result[call] for result in seen.results]
    changed = [place for place, mine in enumerate(local) if not compare.close(want[place], mine, slack[place])]
    lost = [
        rank
        for rank in changed
        if torch.equal(by_rank[rank]["tensor"], local[rank])
        and isinstance(by_rank[rank]["returned"], Tensor)
        and compare.close(by_rank[rank]["returned"], want[rank], slack[rank])
    ]
    if not lost:
        return None
    return (
        f"Rank {lost[0]} returned the right tensor, but the tensor that was handed in is unchanged. The result belongs "
        "into it: end with `tensor.copy_(result)` (`tensor = result` only renames)."
    )


# -- broadcast_tree -------------------------------------------------------------------------------------------

EVERYONE = "every rank ends with src's tensor"
ROUNDS = "in ⌈log₂ n⌉ rounds"
ONCE = "nobody receives twice"


def broadcast_cases(rng: random.Random) -> list[Case]:
    draw = Drawer(rng)
    judged = (EVERYONE, ROUNDS, ONCE)
    return [
        collective_case("4 ranks, src left out", draw.tensors(4, 6), judged),
        collective_case("4 ranks, from the last", draw.tensors(4, 5), judged, src=3),
        collective_case("3 ranks, from rank 1, 2 × 3 int64", draw.tensors(3, 2, 3, dtype=torch.int64), judged, src=1),
        collective_case("4 ranks, src late, called twice", draw.tensors(4, 9, calls=2), judged, src=0, late="first"),
        collective_case("2 ranks, float64, from rank 1", draw.tensors(2, 1, dtype=torch.float64), judged, src=1),
        collective_case("1 rank", draw.tensors(1, 3), judged, src=0),
        collective_case("5 ranks, from the last", draw.tensors(5, 4), judged, src=4, hidden=True),
        collective_case("5 ranks, src late, called twice", draw.tensors(5, 7, calls=2), judged, src=1, late="first", hidden=True),
        collective_case("4 ranks, bfloat16, from rank 2", draw.tensors(4, 3, 3, dtype=torch.bfloat16), judged, src=2, hidden=True),
        collective_case("3 ranks, float16, from rank 2", draw.tensors(3, 5, dtype=torch.float16), judged, src=2, hidden=True),
        collective_case("3 ranks, some late, a single number", draw.tensors(3), judged, src=0, late="last", hidden=True),
    ]


def _src(case: Case) -> int:
    return case.inputs[0]["src"] or 0


def _everyone(case: Case, seen: Observation) -> str | None:
    if problem := library_call(seen, "broadcast"):
        return problem
    src = _src(case)
    for call, local in calls_of(case):
        want = [local[src]] * case.ranks
        if problem := in_place_results(case, seen, call, want, local, [0.0] * case.ranks):
            return problem
        got = [result[call]["tensor"] for result in seen.results]
        if problem := compare.explain(want, got, local, what="holds", **hints(case)):
            return f"{problem} (src is {src}.)"
    return None


def _sends_by_call(case: Case, seen: Observation) -> list[list]:
    """The sends of each rank, in its order, cut evenly into the case's calls; the first call is judged."""
    calls = len(case.inputs[0]["tensors"])
    sends = [[message for message in seen.of_rank(rank) if message.kind == "send"] for rank in range(case.ranks)]
    return [mine[: math.ceil(len(mine) / calls)] for mine in sends]


def _once(case: Case, seen: Observation) -> str | None:
    src = _src(case)
    received = [0] * case.ranks
    for sends in _sends_by_call(case, seen):
        for message in sends:
            received[message.peer] += 1
            if message.peer == src:
                return f"Rank {message.rank} sent to rank {src}{line_of(message)}, which is src and has the data from the start."
    for rank, times in enumerate(received):
        if times > 1:
            return f"Rank {rank} received {times} messages; one with the whole tensor is enough."
        if not times and rank != src:
            return f"No send to rank {rank} was seen. Send with the calls of `torch.distributed`."
    return None


def _rounds(case: Case, seen: Observation) -> str | None:
    """A message's round is one after its sender got the data and after the sender's previous send."""
    src, sends = _src(case), _sends_by_call(case, seen)
    got = {src: 0}
    last = 0
    frontier = [src]
    while frontier:
        rank = frontier.pop(0)
        clock = got[rank]
        for message in sends[rank]:
            clock += 1
            last = max(last, clock)
            if message.peer not in got:
                got[message.peer] = clock
                frontier.append(message.peer)
    if len(got) < case.ranks:
        return "Not every rank was seen to be reached from src. Send with the calls of `torch.distributed`."
    enough = math.ceil(math.log2(case.ranks)) if case.ranks > 1 else 0
    if last > enough:
        busiest = max(range(case.ranks), key=lambda rank: len(sends[rank]))
        cause = (
            f"Rank {busiest} sends {len(sends[busiest])} times, one after the other: let those who have the data help."
            if len(sends[busiest]) > enough
            else "In each round every rank that has the data sends it to one that has not."
        )
        return f"It took {last} rounds; {enough} are enough for {case.ranks} ranks. {cause}"
    return None


BROADCAST = Exercise(
    id="broadcast_tree",
    lesson=LESSON,
    title="Broadcast down a tree",
    names=("broadcast",),
    judgements=(
        Judgement(EVERYONE, 1, _everyone),
        Judgement(ROUNDS, 1, _rounds, how=True),
        Judgement(ONCE, 1, _once, how=True),
    ),
    cases=broadcast_cases,
    drive=drive_broadcast,
)

# -- all_gather_ring ------------------------------------------------------------------------------------------

STACKED = "all tensors, stacked by rank"
GATHER_BYTES = "(n−1) · size bytes sent per rank"
NEIGHBOURS = "only neighbours talk"


def all_gather_cases(rng: random.Random) -> list[Case]:
    draw = Drawer(rng)
    judged = (STACKED, GATHER_BYTES, NEIGHBOURS)
    return [
        collective_case("4 ranks, rank r holds 10**r", digits(4, 3, dtype=torch.int64), judged),
        collective_case("4 ranks, 5 elements", draw.tensors(4, 5), judged),
        collective_case("3 ranks, 2 × 3, float64, called twice", draw.tensors(3, 2, 3, dtype=torch.float64, calls=2), judged),
        collective_case("4 ranks, some late", draw.tensors(4, 13, calls=2), judged, late="last"),
        collective_case("2 ranks", draw.tensors(2, 4), judged),
        collective_case("1 rank", draw.tensors(1, 3), judged),
        collective_case("5 ranks, some late, called twice", draw.tensors(5, 4, calls=2), judged, late="first", hidden=True),
        collective_case("4 ranks, bfloat16, one element", draw.tensors(4, 1, dtype=torch.bfloat16), judged, hidden=True),
        collective_case("3 ranks, a single number each", draw.tensors(3), judged, hidden=True),
        collective_case("3 ranks, some late, three dims", draw.tensors(3, 2, 1, 3), judged, late="last", hidden=True),
        collective_case("2 ranks, float16", draw.tensors(2, 3, dtype=torch.float16), judged, hidden=True),
    ]


def _stacked(case: Case, seen: Observation) -> str | None:
    if problem := library_call(seen, "all_gather"):
        return problem
    for call, local in calls_of(case):
        got = [result[call]["returned"] for result in seen.results]
        if problem := compare.explain(
            [torch.stack(local)] * case.ranks,
            got,
            blocks=case.ranks,
            shape_cause="The tensors are stacked along a new first dim, one for each rank (`torch.stack`).",
            **hints(case),
        ):
            return problem
    return input_changed(case, seen, "all_gather")


def _gather_bytes(case: Case, seen: Observation) -> str | None:
    size = sum(local[0].nbytes for _, local in calls_of(case))
    most = (case.ranks - 1) * size
    return too_many_bytes(seen, most, "(n−1) · size", case.ranks * most, case.hidden)


def _neighbours(case: Case, seen: Observation) -> str | None:
    return not_neighbours(seen)


ALL_GATHER = Exercise(
    id="all_gather_ring",
    lesson=LESSON,
    title="All-gather around the ring",
    names=("all_gather",),
    judgements=(
        Judgement(STACKED, 1, _stacked),
        Judgement(GATHER_BYTES, 1, _gather_bytes, how=True),
        Judgement(NEIGHBOURS, 1, _neighbours, how=True),
    ),
    cases=all_gather_cases,
    drive=drive_all_gather,
)

# -- reduce_scatter_ring --------------------------------------------------------------------------------------

PIECE = "each rank gets its piece of the sum, the input stays"
UNEVEN = "lengths that do not divide"
SCATTER_BYTES = "(n−1)/n of the bytes, to neighbours only"


def reduce_scatter_cases(rng: random.Random) -> list[Case]:
    draw = Drawer(rng)
    even, uneven = (PIECE, SCATTER_BYTES), (UNEVEN, SCATTER_BYTES)
    return [
        collective_case("4 ranks, 8 elements, rank r holds 10**r", digits(4, 8), even),
        collective_case("3 ranks, 12 elements", draw.tensors(3, 12), even),
        collective_case("4 ranks, 4 × 4, float64, some late", draw.tensors(4, 4, 4, dtype=torch.float64, calls=2), even, late="last"),
        collective_case("2 ranks, 6 elements", draw.tensors(2, 6), even),
        collective_case("4 ranks, 9 elements, rank r holds 10**r", digits(4, 9, dtype=torch.int64), uneven),
        collective_case("3 ranks, 13 elements, called twice", draw.tensors(3, 13, calls=2), uneven),
        collective_case("4 ranks, 2 elements", draw.tensors(4, 2), uneven),
        collective_case("1 rank", draw.tensors(1, 3), even),
        collective_case("5 ranks, some late, called twice", draw.tensors(5, 10, calls=2), even, late="first", hidden=True),
        collective_case("4 ranks, bfloat16", draw.tensors(4, 8, dtype=torch.bfloat16), even, hidden=True),
        collective_case("5 ranks, a length that does not divide", draw.tensors(5, 17, dtype=torch.float64), uneven, hidden=True),
        collective_case("3 ranks, two dims that do not divide", draw.tensors(3, 2, 4), uneven, late="last", hidden=True),
        collective_case("4 ranks, one element", draw.tensors(4, 1), uneven, hidden=True),
    ]


def _piece(case: Case, seen: Observation) -> str | None:
    if problem := library_call(seen, "reduce_scatter"):
        return problem
    for call, local in calls_of(case):
        pieces = [share(local[0].numel(), rank, case.ranks) for rank in range(case.ranks)]
        cut = [slice(piece.start, piece.stop) for piece in pieces]
        total, slack = _exact_sum(local).reshape(-1), compare.summation_slack(local).reshape(-1)
        got = [result[call]["returned"] for result in seen.results]
        if problem := compare.explain(
            [total[mine] for mine in cut],
            got,
            [mine.reshape(-1)[part] for mine, part in zip(local, cut)],
            slack=[slack[mine] for mine in cut],
            reduction="sum",
            shape_cause=(
                "Rank r returns, flat, the piece `my_share(numel, r, n)`: sizes differ by at most one, larger first, "
                "no padding (`torch.tensor_split` cuts so; `torch.chunk` does not)."
            ),
            **hints(case),
        ):
            return problem
    return input_changed(case, seen, "reduce_scatter")


def _exact_sum(parts: list[Tensor]) -> Tensor:
    if not parts[0].is_floating_point():
        return sum(parts)
    return sum(part.double() for part in parts).to(parts[0].dtype)


def _ring_bytes(case: Case, seen: Observation, loops: int, formula: str) -> str | None:
    """At most ``loops`` · (n−1) pieces of ⌈numel / n⌉ elements from each rank, to its neighbours."""
    n, most, least = case.ranks, 0, 0
    for _, local in calls_of(case):
        steps = loops * (n - 1)
        most += steps * math.ceil(local[0].numel() / n) * local[0].element_size()
        least += steps * local[0].nbytes
    return too_many_bytes(seen, most, formula, least, case.hidden) or not_neighbours(seen)


def _scatter_bytes(case: Case, seen: Observation) -> str | None:
    return _ring_bytes(case, seen, 1, "(n−1) · ⌈numel/n⌉ elements")


REDUCE_SCATTER = Exercise(
    id="reduce_scatter_ring",
    lesson=LESSON,
    title="Reduce-scatter around the ring",
    names=("reduce_scatter",),
    judgements=(
        Judgement(PIECE, 1, _piece),
        Judgement(UNEVEN, 1, _piece),
        Judgement(SCATTER_BYTES, 1, _scatter_bytes, how=True),
    ),
    cases=reduce_scatter_cases,
    drive=drive_reduce_scatter,
)

# -- ring_all_reduce ------------------------------------------------------------------------------------------

RIGHT_SUM = "every rank holds the sum"
ANY_TENSOR = "any size, dtype and layout"
RING_BYTES = "2(n−1)/n of the bytes, to neighbours only"
OVERLAP = "large tensors do not lock up"


def ring_cases(rng: random.Random) -> list[Case]:
    draw = Drawer(rng)
    sums, any_tensor, large = (RIGHT_SUM, RING_BYTES), (ANY_TENSOR, RING_BYTES), (OVERLAP, RING_BYTES)
    f16, bf16, f64 = torch.float16, torch.bfloat16, torch.float64
    return [
        collective_case("4 ranks, 8 elements, rank r holds 10**r", digits(4, 8), sums),
        collective_case("3 ranks, 12 elements, called twice", draw.tensors(3, 12, calls=2), sums),
        collective_case("4 ranks, 16 elements, some late", draw.tensors(4, 16, calls=2), sums, late="last"),
        collective_case("2 ranks, 6 elements", draw.tensors(2, 6), sums),
        collective_case("4 ranks, 9 elements, rank r holds 10**r", digits(4, 9), any_tensor),
        collective_case("4 ranks, 2 elements", draw.tensors(4, 2), any_tensor),
        collective_case("4 ranks, no element", draw.tensors(4, 0), any_tensor),
        collective_case("3 ranks, 13 elements, float64", draw.tensors(3, 13, dtype=f64), any_tensor),
        collective_case("4 ranks, 3 × 5, bfloat16", draw.tensors(4, 3, 5, dtype=bf16), any_tensor),
        collective_case("3 ranks, a column of a matrix", draw.tensors(3, 7), any_tensor, layout="column"),
        collective_case("4 ranks, transposed 3 × 4", draw.tensors(4, 3, 4), any_tensor, layout="transposed"),
        collective_case("1 rank", draw.tensors(1, 5), any_tensor),
        collective_case("4 ranks, a million elements", draw.seeds(4, 2**20), large, deadline_seconds=5.0),
        collective_case("5 ranks, some late, called twice", draw.tensors(5, 20, calls=2), sums, late="first", hidden=True),
        collective_case("4 ranks, float64, called twice", draw.tensors(4, 12, dtype=f64, calls=2), sums, hidden=True),
        collective_case("5 ranks, a length that does not divide", draw.tensors(5, 23), any_tensor, late="last", hidden=True),
        collective_case("3 ranks, one element", draw.tensors(3, 1), any_tensor, hidden=True),
        collective_case("3 ranks, a single number", draw.tensors(3), any_tensor, hidden=True),
        collective_case("3 ranks, float16, a column", draw.tensors(3, 11, dtype=f16), any_tensor, layout="column", hidden=True),
        collective_case("4 ranks, bfloat16, transposed", draw.tensors(4, 5, 3, dtype=bf16), any_tensor, layout="transposed", hidden=True),
        collective_case("3 ranks, no element", draw.tensors(3, 2, 0), any_tensor, hidden=True),
        collective_case("3 ranks, large", draw.seeds(3, 2**21 + 1), large, hidden=True, deadline_seconds=8.0),
    ]


def _sum_in_place(case: Case, seen: Observation) -> str | None:
    if problem := library_call(seen, "ring_all_reduce"):
        return problem
    for call, local in calls_of(case):
        want = [_exact_sum(local)] * case.ranks
        slack = [compare.summation_slack(local)] * case.ranks
        if problem := in_place_results(case, seen, call, want, local, slack):
            return problem
        got = [result[call]["tensor"] for result in seen.results]
        problem = compare.explain(
            want, got, local, what="holds", slack=slack, reduction="sum", same=True, **hints(case)
        )
        if problem:
            return problem + _layout_cause(case, got, local)
    return None


def _layout_cause(case: Case, got: list[Tensor], local: list[Tensor]) -> str:
    if case.inputs[0]["layout"] == "plain" or not torch.equal(got[0], local[0]):
        return ""
    return (
        " This tensor is not contiguous, so `tensor.contiguous()` and `tensor.reshape(-1)` give a copy: "
        "write the result back with `tensor.copy_(…)`."
    )


def _all_reduce_bytes(case: Case, seen: Observation) -> str | None:
    return _ring_bytes(case, seen, 2, "2(n−1) · ⌈numel/n⌉ elements")


RING_ALL_REDUCE = Exercise(
    id="ring_all_reduce",
    lesson=LESSON,
    title="Ring all-reduce",
    names=("ring_all_reduce",),
    judgements=(
        Judgement(RIGHT_SUM, 2, _sum_in_place),
        Judgement(ANY_TENSOR, 1, _sum_in_place),
        Judgement(OVERLAP, 1, _sum_in_place),
        Judgement(RING_BYTES, 1, _all_reduce_bytes, how=True),
    ),
    cases=ring_cases,
    drive=drive_ring,
)

# -- fit_alpha_beta -------------------------------------------------------------------------------------------

CLEAN = "a clean ping-pong"
OUTLIER = "one measurement is far off"


def drive_fit(answers: SimpleNamespace, inputs: dict[str, Any]) -> Any:
    fits = []
    for sizes, seconds in inputs["runs"]:
        fit = answers.fit_alpha_beta(list(sizes), list(seconds))
        fit = fit.tolist() if hasattr(fit, "tolist") else fit
        fits.append([as_number(part) for part in fit] if isinstance(fit, (list, tuple)) else fit)
    return fits


def fit_cases(rng: random.Random) -> list[Case]:
    # Sizes from a twentieth of αβ to three times it: below, latency decides, above, bandwidth. There both are
    # well determined at 1 % noise, by any sound way to fit a line.
    def run(count: int, outlier: float | None = None) -> dict[str, Any]:
        alpha, beta = 10 ** rng.uniform(-5.3, -3.7), 10 ** rng.uniform(8.5, 10.5)
        sizes = [round(0.05 * 60 ** (place / (count - 1)) * alpha * beta) for place in range(count)]
        seconds = [(alpha + size / beta) * (1 + rng.uniform(-0.01, 0.01)) for size in sizes]
        if outlier is not None:
            seconds[round(outlier * (count - 1))] *= rng.uniform(5, 12)
        order = rng.sample(range(count), count)
        return {"run": ([sizes[i] for i in order], [seconds[i] for i in order]), "truth": (alpha, beta)}

    def case(name: str, runs: list[dict[str, Any]], judgement: str, hidden: bool = False) -> Case:
        truths = [run["truth"] for run in runs]
        return Case(name, [{"runs": [run["run"] for run in runs]}], (judgement,), truths, hidden=hidden)

    return [
        case("8 sizes", [run(8), run(8)], CLEAN),
        case("5 sizes", [run(5), run(5)], CLEAN),
        case("the largest message was slow once", [run(9, 1.0)], OUTLIER),
        case("a message of middle size was slow once", [run(9, 0.5)], OUTLIER),
        case("the smallest message was slow once", [run(9, 0.0)], OUTLIER),
        case("other machines", [run(count) for count in (5, 6, 10, 16)], CLEAN, hidden=True),
        case("one slow message somewhere", [run(9, rng.random()) for _ in range(4)], OUTLIER, hidden=True),
        case("one slow message among few", [run(7, 1.0), run(7, 0.5), run(7, 0.0)], OUTLIER, hidden=True),
    ]


def _fit(case: Case, seen: Observation) -> str | None:
    for got, (alpha, beta) in zip(seen.results[0], case.expected):
        if not isinstance(got, list) or len(got) != 2 or any(type(part) is not float for part in got):
            shown = f"{len(got)} values" if isinstance(got, list) and len(got) != 2 else compare.describe(got)
            if isinstance(got, list) and len(got) == 2:
                shown = " and ".join(compare.describe(part) for part in got)
            return f"It returned {shown}; two floats were expected: alpha in seconds, beta in bytes per second."
        mine = {"alpha": got[0], "beta": got[1]}
        if _near(got[0], beta) and _near(got[1], alpha):
            return "Alpha and beta are the wrong way round: return `(alpha, beta)`."
        for name, unit, right in (("beta", "bytes per second", beta), ("alpha", "seconds", alpha)):
            if not _near(mine[name], right):
                shown = "" if case.hidden else f" {mine[name]:.3g} where {right:.3g} {unit} was expected."
                return f"{name.capitalize()} is off:{shown or ' it is not within 10 %.'} {_fit_cause(name, mine[name], right, case)}".strip()
    return None


def _near(got: float, right: float, tolerance: float = 0.1) -> bool:
    return abs(got - right) <= tolerance * abs(right)


def _fit_cause(name: str, got: float, right: float, case: Case) -> str:
    causes = [
        (1e-9, "That is in GB/s; bytes per second were asked for."),
        (2.0**-30, "That is in GiB/s; bytes per second were asked for."),
        (1e-6, "That is in MB/s; bytes per second were asked for."),
        (8.0, "Those are bits per second; bytes were asked for."),
        (2.0, "The times are one-way already: no halving is needed."),
    ]
    if name == "alpha":
        causes = [
            (1e6, "That is in microseconds; seconds were asked for."),
            (1e3, "That is in milliseconds; seconds were asked for."),
            (0.5, "The times are one-way already: no halving is needed."),
            (-1.0, "Its sign is turned: seconds = alpha + bytes / beta."),
        ]
    elif _near(got, 1 / right):
        return "That is the slope, seconds per byte; beta is its inverse."
    for factor, cause in causes:
        if _near(got, right * factor):
            return cause
    if OUTLIER in case.judgements:
        return "One measurement is far off the line and pulls the fit: use medians, or leave out what does not fit."
    if got < 0:
        return "It is negative: does an outlier turn the line, or are sizes and seconds swapped?"
    return "Fit seconds = alpha + bytes / beta; the sizes may come in any order."


FIT_ALPHA_BETA = Exercise(
    id="fit_alpha_beta",
    lesson=LESSON,
    title="Latency and bandwidth of this machine",
    names=("fit_alpha_beta",),
    judgements=(Judgement(CLEAN, 1, _fit), Judgement(OUTLIER, 1, _fit)),
    cases=fit_cases,
    drive=drive_fit,
    process_group=False,
)

# -- ring_seconds and bus_bandwidth: formulas -------------------------------------------------------------------

LATENCY = "latency: a step costs alpha"
BANDWIDTH = "bandwidth: each rank sends 2(n−1)/n of the bytes"


def drive_ring_seconds(answers: SimpleNamespace, inputs: dict[str, Any]) -> Any:
    return [as_number(answers.ring_seconds(*arguments)) for arguments in inputs["calls"]]


def drive_bus_bandwidth(answers: SimpleNamespace, inputs: dict[str, Any]) -> Any:
    return [as_number(answers.bus_bandwidth(*arguments)) for arguments in inputs["calls"]]


def formula_case(name: str, calls: list[tuple], *judgements: str, hidden: bool = False) -> Case:
    return Case(name, [{"calls": calls}], judgements, hidden=hidden)


def _formula(case: Case, seen: Observation, truth, signature: str, slips) -> str | None:
    """Compare with ``truth``; ``slips`` are pairs of a usual wrong formula and what to say about it."""
    for arguments, got in zip(case.inputs[0]["calls"], seen.results[0]):
        right = truth(*arguments)
        if type(got) is not float:
            return f"It returned {compare.describe(got)}; a number was expected."
        if not math.isclose(got, right, rel_tol=1e-6, abs_tol=1e-15):
            cause = next((say for slip, say in slips if _matches(slip, arguments, got)), "")
            if case.hidden:
                return f"The result is wrong. {cause}".strip()
            shown = ", ".join(f"{value:,}" if isinstance(value, int) else f"{value:g}" for value in arguments)
            return f"For {signature} = {shown} it gives {got:.6g}; {right:.6g} was expected. {cause}".strip()
    return None


def _matches(slip, arguments: tuple, got: float) -> bool:
    try:
        return math.isclose(got, slip(*arguments), rel_tol=1e-6)
    except ZeroDivisionError:
        return False


def ring_seconds_cases(rng: random.Random) -> list[Case]:
    def calls(count: int, least: int, most: int) -> list[tuple]:
        return [
            (rng.randint(least, most), rng.randint(3, 64), 10 ** rng.uniform(-6, -4), 10 ** rng.uniform(9, 11))
            for _ in range(count)
        ]

    def without_latency(count: int) -> list[tuple]:
        return [(size, ranks, 0.0, beta) for size, ranks, _, beta in calls(count, 10**6, 10**10)]

    return [
        formula_case("no bytes, only latency", [(0, 4, 20e-6, 1e9), (0, 3, 5e-6, 1e10)], LATENCY),
        formula_case("small messages, many ranks", [(4096, 64, 20e-6, 1e10), (100, 2, 1e-5, 1e9)], LATENCY),
        formula_case("no latency, only bandwidth", [(10**9, 8, 0.0, 25e9), (1000, 3, 0.0, 1e9)], BANDWIDTH),
        formula_case("1 rank", [(10**6, 1, 20e-6, 1e9)], LATENCY, BANDWIDTH),
        formula_case("small messages", calls(6, 1, 10**5), LATENCY, hidden=True),
        formula_case("large messages without latency", without_latency(6), BANDWIDTH, hidden=True),
        formula_case("large messages with latency", calls(6, 10**6, 10**9), LATENCY, hidden=True),
    ]


def true_ring_seconds(n_bytes: float, ranks: int, alpha: float, beta: float) -> float:
    return 2 * (ranks - 1) * (alpha + n_bytes / (ranks * beta))


RING_SLIPS = (
    (lambda s, n, a, b: 2 * (n - 1) * s / (n * b), "The latency term is missing: every step also costs alpha."),
    (lambda s, n, a, b: a + 2 * (n - 1) * s / (n * b), "Alpha is counted once; it is paid in each of the 2(n−1) steps."),
    (lambda s, n, a, b: 2 * a + 2 * (n - 1) * s / (n * b), "Alpha is paid in each of the 2(n−1) steps."),
    (lambda s, n, a, b: (n - 1) * (a + s / (n * b)), "That is one loop around the ring; an all-reduce takes two."),
    (lambda s, n, a, b: 2 * (n - 1) * (a + s / b), "A step sends one piece of n_bytes / ranks, not the whole tensor."),
    (lambda s, n, a, b: 2 * n * (a + s / (n * b)), "Each loop has n−1 steps, not n."),
    (lambda s, n, a, b: a + s / b, "That is one message from rank to rank, not a ring."),
    (lambda s, n, a, b: 2 * (n - 1) * a + s / b, "The bytes that each rank sends are 2(n−1)/n · n_bytes."),
    (lambda s, n, a, b: 2 * (n - 1) * (a + s * b / n), "Beta is bytes per second: divide by it."),
    (lambda s, n, a, b: 2 * (n - 1) * (a + 8 * s / (n * b)), "Beta is in bytes per second here, not bits."),
)


def _ring_seconds(case: Case, seen: Observation) -> str | None:
    return _formula(case, seen, true_ring_seconds, "n_bytes, ranks, alpha, beta", RING_SLIPS)


RING_SECONDS = Exercise(
    id="ring_seconds",
    lesson=LESSON,
    title="How long does a ring all-reduce take?",
    names=("ring_seconds",),
    judgements=(Judgement(LATENCY, 1, _ring_seconds), Judgement(BANDWIDTH, 1, _ring_seconds)),
    cases=ring_seconds_cases,
    drive=drive_ring_seconds,
    process_group=False,
)

PER_SECOND = "bytes per second"
FACTOR = "the factor 2(n−1)/n"


def bus_bandwidth_cases(rng: random.Random) -> list[Case]:
    def calls(count: int, ranks: tuple[int, ...]) -> list[tuple]:
        return [(rng.randint(10**3, 10**10), 10 ** rng.uniform(-5, 1), rng.choice(ranks)) for _ in range(count)]

    return [
        formula_case("2 ranks: as much as goes over the bus", [(10**9, 0.1, 2), (4096, 2e-5, 2)], PER_SECOND),
        formula_case("more ranks", [(8 * 10**8, 0.1, 8), (10**6, 1e-3, 4), (10**6, 1e-3, 3)], FACTOR),
        formula_case("1 rank", [(10**6, 0.5, 1)], FACTOR),
        formula_case("2 ranks, other sizes", calls(5, (2,)), PER_SECOND, hidden=True),
        formula_case("other numbers of ranks", calls(8, (3, 5, 16, 64, 1000)), FACTOR, hidden=True),
    ]


def true_bus_bandwidth(n_bytes: float, seconds: float, ranks: int) -> float:
    return 2 * (ranks - 1) / ranks * n_bytes / seconds


BUS_SLIPS = (
    (lambda s, t, n: s / t, "That is the algorithm bandwidth, n_bytes / seconds; times 2(n−1)/n it is the bus bandwidth."),
    (lambda s, t, n: (n - 1) / n * s / t, "(n−1)/n is the factor of all-gather and reduce-scatter; an all-reduce is both."),
    (lambda s, t, n: n / (2 * (n - 1)) * s / t, "The factor is upside down: 2(n−1)/n."),
    (lambda s, t, n: 2 * (n - 1) * s / t, "That is what all ranks send together; the bus bandwidth is per rank."),
    (lambda s, t, n: 2 * s / t, "The factor is 2(n−1)/n; it only comes near 2 for many ranks."),
    (lambda s, t, n: 8 * true_bus_bandwidth(s, t, n), "Those are bits; bytes per second were asked for."),
    (lambda s, t, n: true_bus_bandwidth(s, t, n) / 1e9, "That is in GB/s; bytes per second were asked for."),
    (lambda s, t, n: true_bus_bandwidth(s, t, n) / 2**30, "That is in GiB/s; bytes per second were asked for."),
    (lambda s, t, n: true_bus_bandwidth(s, t, n) * t * t, "Bytes are divided by seconds, not multiplied."),
    (lambda s, t, n: t / true_bus_bandwidth(s, 1, n), "That is seconds per byte: turn it round."),
)


def _bus_bandwidth(case: Case, seen: Observation) -> str | None:
    return _formula(case, seen, true_bus_bandwidth, "n_bytes, seconds, ranks", BUS_SLIPS)


BUS_BANDWIDTH = Exercise(
    id="bus_bandwidth",
    lesson=LESSON,
    title="Bus bandwidth",
    names=("bus_bandwidth",),
    judgements=(Judgement(PER_SECOND, 1, _bus_bandwidth), Judgement(FACTOR, 1, _bus_bandwidth)),
    cases=bus_bandwidth_cases,
    drive=drive_bus_bandwidth,
    process_group=False,
)

# -- the quiz -------------------------------------------------------------------------------------------------

QUESTIONS = (
    Question(
        key="q1",
        text=(
            "A ring all-reduce of 800 MB of gradients over 8 ranks takes 0.1 s. How much does each rank send, and what is "
            "the bus bandwidth?"
        ),
        options={
            "a": "800 MB; 8 GB/s",
            "b": "5.6 GB; 56 GB/s",
            "c": "1.4 GB; 14 GB/s",
            "d": "1.4 GB; 8 GB/s",
        },
        right="881b43a1dad17852",
        why=(
            "Two loops of 7 steps, each with a piece of 100 MB: 1.4 GB, whatever the number of ranks nearly 2 × the size. "
            "The bus bandwidth counts these bytes, 14 GB/s; the algorithm bandwidth is 800 MB / 0.1 s = 8 GB/s."
        ),
    ),
    Question(
        key="q2",
        text="A step all-reduces 500 tensors of 4 KB each over 64 ranks, one by one. What makes that much faster?",
        options={
            "a": "Putting the tensors into one large one and reducing that: far fewer steps.",
            "b": "A link of twice the bandwidth.",
            "c": "Sending them as bfloat16: half the bytes.",
            "d": "More ranks: each then sends a smaller piece.",
        },
        right="6bfe90f614600bd9",
        why=(
            "Pieces of 64 bytes cost their latency alone: 500 × 126 steps of alpha. Bandwidth and fewer bytes touch the "
            "other term, more ranks add steps. One tensor of 2 MB takes 126 steps in all; DDP's buckets do this."
        ),
    ),
    Question(
        key="q3",
        text="Every rank calls `dist.send(x, right)` and then `dist.recv(y, left)`. What does that do?",
        options={
            "a": "It always works: a send returns at once.",
            "b": "It works if the number of ranks is even.",
            "c": "It gives garbage in `y`, because nothing waits.",
            "d": "It can wait for ever: each send waits for a recv that no rank has reached yet.",
        },
        right="5562c812b57cccf4",
        why=(
            "A blocking send may return only when the other side takes the data, and all ranks are still in their send. "
            "`isend` before `recv`, `batch_isend_irecv`, or even ranks sending first while odd ones receive breaks the circle."
        ),
    ),
)
NUDGES = {
    "q1": "count the steps of both loops and the bytes of one piece; which bytes does the bus bandwidth count?",
    "q2": "compare alpha with the time that one piece of 4 KB / 64 takes on the wire.",
    "q3": "ask what a send waits for, and where the rank beside it stands at that moment.",
}

QUIZ = Quiz(
    id="quiz_04",
    lesson=LESSON,
    title="Quiz: collectives",
    names=("answers",),
    judgements=quiz_judgements("quiz_04", QUESTIONS, NUDGES),
    cases=quiz_cases(QUESTIONS),
    drive=quiz_drive,
    process_group=False,
    questions=QUESTIONS,
)

EXERCISES: list[Exercise] = [
    BROADCAST,
    ALL_GATHER,
    REDUCE_SCATTER,
    RING_ALL_REDUCE,
    FIT_ALPHA_BETA,
    RING_SECONDS,
    BUS_BANDWIDTH,
    QUIZ,
]
