"""Exercise make_buckets: parameters in buckets, in the order in which their gradients come."""

from __future__ import annotations

import random
from collections import Counter
from types import SimpleNamespace
from typing import Any

import torch
from torch import nn

from autograder.exercise import Case, Exercise, Judgement
from rankzero.observe.observation import Observation

LESSON = "05_ddp"

ORDER = "every parameter once, the last ones first"
LIMITS = "one dtype, at most cap_bytes, as full as it gets"
F64, F32, BF16 = "float64", "float32", "bfloat16"
SIZES = {F64: 8, F32: 4, BF16: 2}

# -- in the rank: shipped there by value ----------------------------------------------------------------------


def drive_buckets(answers: SimpleNamespace, inputs: dict[str, Any]) -> Any:
    """The buckets, with each parameter as its number; −1 for what is none of the given ones."""
    parameters = [nn.Parameter(torch.zeros(shape, dtype=getattr(torch, dtype))) for shape, dtype in inputs["given"]]
    numbers = {id(parameter): number for number, parameter in enumerate(parameters)}
    given: Any = {"list": list, "generator": iter, "tuple": tuple}[inputs["as"]](parameters)
    buckets = answers.make_buckets(given, inputs["cap_bytes"])
    try:
        return [[numbers.get(id(parameter), -1) for parameter in bucket] for bucket in buckets]
    except TypeError:
        return type(buckets).__name__


# -- on the judge's side --------------------------------------------------------------------------------------


def buckets_cases(rng: random.Random) -> list[Case]:
    def case(name: str, cap_bytes: int, given: list[tuple], *, hidden: bool = False, given_as: str = "list") -> Case:
        inputs = {"given": given, "cap_bytes": cap_bytes, "as": given_as}
        return Case(name, [inputs], (ORDER, LIMITS), hidden=hidden)

    def plain(*sizes: int, dtype: str = F32) -> list[tuple]:
        return [((size,), dtype) for size in sizes]

    mixed = [((rng.randint(1, 6), rng.randint(1, 6)), rng.choice([F32, BF16, F64])) for _ in range(16)]
    return [
        case("five parameters, two to a bucket", 40, plain(4, 5, 5, 6, 4)),
        case("a bucket filled to the byte", 64, plain(8, 8, 16, 4, 4, 8)),
        case("one is larger than the cap", 40, plain(3, 3, 100, 4, 2)),
        case("the last one is larger than the cap", 40, plain(3, 3, 2, 100)),
        case("the first one is larger than the cap", 40, plain(100, 3, 3, 2)),
        case("bfloat16 among float32", 60, [*plain(4, 4), *plain(6, 4, dtype=BF16), *plain(5, 3)]),
        case(
            "matrices and numbers, from a generator",
            100,
            [((3, 4), F32), ((), F32), ((5, 4), F32), ((2,), F32)],
            given_as="generator",
        ),
        case("one bucket takes all", 25 * 2**20, plain(100, 10, 1)),
        case("no parameters", 100, []),
        case("many sizes", 200, plain(*(rng.randint(1, 40) for _ in range(25))), hidden=True, given_as="generator"),
        case("many sizes and dtypes", 90, mixed, hidden=True, given_as="tuple"),
        case("a cap below every size", 1, plain(*(rng.randint(1, 9) for _ in range(5))), hidden=True),
        case("bfloat16 up to the byte", 32, plain(8, 8, 4, 4, 8, dtype=BF16), hidden=True),
    ]


def greedy(given: list[tuple], cap_bytes: int, close_at_change: bool, per_element: int = 0) -> list[list[int]]:
    """Buckets as they are filled one by one: one is open at a time, or one for each dtype.

    ``per_element`` counts so many bytes for an element, whatever its dtype.
    """
    buckets: list[list[int]] = []
    opened: dict[str, tuple[list[int], int]] = {}
    for number in reversed(range(len(given))):
        dtype = given[number][1]
        if close_at_change:
            opened = {dtype: opened[dtype]} if dtype in opened else {}
        bucket, used = opened.get(dtype, ([], cap_bytes + 1))
        size = bytes_of(given[number]) * per_element // SIZES[dtype] if per_element else bytes_of(given[number])
        if used + size > cap_bytes:
            bucket, used = [], 0
            buckets.append(bucket)
        bucket.append(number)
        opened[dtype] = (bucket, used + size)
    return buckets


def bytes_of(one: tuple) -> int:
    """Bytes of a parameter, given as its shape and dtype."""
    shape, dtype = one
    return int(torch.Size(shape).numel()) * SIZES[dtype]


def by_dtype(buckets: list[list[int]], given: list[tuple]) -> dict[str, list[list[int]]]:
    """The buckets of each dtype, in their order."""
    sorted_out: dict[str, list[list[int]]] = {}
    for bucket in buckets:
        sorted_out.setdefault(given[bucket[0]][1], []).append(bucket)
    return sorted_out


def _order(case: Case, seen: Observation) -> str | None:
    buckets, given = seen.results[0], case.inputs[0]["given"]
    if isinstance(buckets, str):
        return f"`make_buckets` returned an object of type {buckets}; a list of lists of parameters was expected."
    if not given and not any(buckets):
        return None
    if not all(buckets):
        return "One of the buckets is empty: close a bucket only when something is in it."
    counts = Counter(number for bucket in buckets for number in bucket)
    if -1 in counts:
        return "In the buckets are other objects than the parameters that were given: no copies, no numbers."
    if missing := [number for number in range(len(given)) if number not in counts]:
        which = f"{len(missing)} parameters are" if len(missing) > 1 else f"Parameter {missing[0]} is"
        return f"{which} in no bucket. {_missing_cause(missing, given, case.inputs[0]['cap_bytes'], buckets)}"
    if twice := [number for number, count in counts.items() if count > 1]:
        return f"Parameter {twice[0]} is in the buckets {counts[twice[0]]} times; it must be there once."
    for dtype in {dtype for _, dtype in given}:
        numbers = [number for bucket in buckets for number in bucket if given[number][1] == dtype]
        if numbers == sorted(numbers) and len(numbers) > 1:
            return (
                "The parameters stand in the order of the model. Gradients come from the back, so the last parameters "
                "belong into the first bucket."
            )
        if numbers != sorted(numbers, reverse=True):
            if numbers == sorted(numbers, key=lambda number: bytes_of(given[number])):
                return "The parameters are sorted by size; keep the reverse of the given order, as gradients come."
            if [number for bucket in reversed(buckets) for number in reversed(bucket)] == list(
                reversed(range(len(given)))
            ):
                return "The buckets are filled from the front: go through the parameters in reverse."
            return (
                "The order is neither that of the model nor its reverse: go through the parameters in reverse, once; "
                "turn round neither the buckets nor what is in them."
            )
    return None


def _missing_cause(missing: list[int], given: list[tuple], cap_bytes: int, buckets: list[list[int]]) -> str:
    if all(bytes_of(given[number]) > cap_bytes for number in missing):
        return "It is larger than the cap: it gets a bucket of its own."
    if missing == list(range(len(missing))):
        return "Those come last: the bucket that is open at the end must be put out, too."
    return "Is the parameter that no longer fits lost, where a bucket is closed?"


def _limits(case: Case, seen: Observation) -> str | None:
    if problem := _order(case, seen):
        return problem
    inputs = case.inputs[0]
    given, cap_bytes, buckets = inputs["given"], inputs["cap_bytes"], [list(bucket) for bucket in seen.results[0]]
    if not given:
        return None
    for bucket in buckets:
        if len({given[number][1] for number in bucket}) > 1:
            return "A bucket has parameters of two dtypes: one flat tensor cannot hold both. Start another one."
    for bucket in buckets:
        sizes = [bytes_of(given[number]) for number in bucket]
        if len(bucket) > 1 and sum(sizes) > cap_bytes:
            cause = _over_cause(buckets, bucket, given, cap_bytes)
            return f"A bucket holds {sum(sizes)} bytes; the cap is {cap_bytes}. {cause}"
    wanted = [greedy(given, cap_bytes, close_at_change) for close_at_change in (True, False)]
    if any(by_dtype(buckets, given) == by_dtype(right, given) for right in wanted):
        return None
    return _too_many(buckets, given, cap_bytes, min(map(len, wanted)))


def _over_cause(buckets: list[list[int]], bucket: list[int], given: list[tuple], cap_bytes: int) -> str:
    sizes = [bytes_of(given[number]) for number in bucket]
    if any(size > cap_bytes for size in sizes):
        return "A parameter larger than the cap stays alone in its bucket."
    if any(buckets == greedy(given, cap_bytes, close, per_element=1) for close in (True, False)):
        return "Are elements counted, not bytes? An element has `element_size()` bytes."
    if sum(sizes[:-1]) <= cap_bytes:
        return "Close the bucket before the parameter that would exceed it, not after."
    return "Count the bytes of the open bucket anew when it is opened."


def _too_many(buckets: list[list[int]], given: list[tuple], cap_bytes: int, right: int) -> str:
    if all(len(bucket) == 1 for bucket in buckets):
        return "Each parameter has a bucket of its own, though several would fit into one."
    filled = greedy(given, cap_bytes - 1, True), greedy(given, cap_bytes - 1, False)
    if any(by_dtype(buckets, given) == by_dtype(one, given) for one in filled):
        return "A bucket that would be full to the byte is closed too early: cap_bytes itself is allowed."
    if any(buckets == greedy(given, cap_bytes, close, per_element=4) for close in (True, False)):
        return "Are 4 bytes counted for each element? A bfloat16 has 2: ask `element_size()`."
    return (
        f"There are {len(buckets)} buckets; filled one after the other, {right} are enough: close one only when the "
        "next parameter does not fit, or has another dtype."
    )


MAKE_BUCKETS = Exercise(
    id="make_buckets",
    lesson=LESSON,
    names=("make_buckets",),
    judgements=(Judgement(ORDER, 1, _order), Judgement(LIMITS, 1, _limits)),
    cases=buckets_cases,
    drive=drive_buckets,
    process_group=False,
)
