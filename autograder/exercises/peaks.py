"""Exercise measured_peak: the most bytes alive at once during a step, temporaries and autograd's tensors included."""

from __future__ import annotations

import random
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import torch

from autograder import compare
from autograder.exercise import Case, Exercise, Judgement
from autograder.exercises.common import as_number
from rankzero.observe.observation import Observation

LESSON = "01_vram"

PEAK = "the most at once, temporaries included"
BEFORE = "what lived before is left out"
AUTOGRAD = "what autograd keeps, and backward"

# -- in the rank: shipped there by value --------------------------------------------------------------------


def temporaries(n: int, k: int, room: SimpleNamespace) -> None:
    x = torch.ones(n, device=room.device)
    for _ in range(k):
        x = (x * 2 + 1) / 3


def kept(n: int, k: int, room: SimpleNamespace) -> None:
    room.keep.append(torch.ones(n, device=room.device))
    passing = torch.ones(k * n, device=room.device)
    passing.mul_(2)


def middle(n: int, k: int, room: SimpleNamespace) -> None:
    large = torch.ones(k * n, device=room.device)
    total = large.sum()
    del large
    room.keep.append(torch.ones(n, device=room.device) * total)


def views(n: int, k: int, room: SimpleNamespace) -> None:
    x = torch.ones(2 * n, device=room.device)
    seen = [x.view(2, n), x[1:], x.view(2, n).t(), x.detach(), *x.split(n)]
    seen[0].add_(1)


def dtypes(n: int, k: int, room: SimpleNamespace) -> None:
    half = torch.ones(n, dtype=torch.bfloat16, device=room.device)
    double = torch.ones(n, dtype=torch.float64, device=room.device)
    flags = torch.ones(2 * n, dtype=torch.bool, device=room.device)
    half[0], double[0], flags[0] = 2, 2, False


def first_time(n: int, k: int, room: SimpleNamespace) -> None:
    if not room.keep:
        room.keep.append(torch.zeros(k * n, device=room.device))
    passing = room.keep[0][:n] * 2
    passing += 1


def reads_older(n: int, k: int, room: SimpleNamespace) -> None:
    for _ in range(k):
        total = room.older[:n] * 2
        del total
    room.older[:n] += 1


def adds_to_older(n: int, k: int, room: SimpleNamespace) -> None:
    room.keep.append(room.older[:n] + 1)
    room.keep.append((room.older[: k * n] * 2).sum())


def forward_only(n: int, k: int, room: SimpleNamespace) -> None:
    y = room.weight
    for _ in range(k):
        y = y.sin()
    room.keep.append(y.sum())


def backward_too(n: int, k: int, room: SimpleNamespace) -> None:
    y = room.weight
    for _ in range(k):
        y = y.sin()
    y.sum().backward()


def training_step(n: int, k: int, room: SimpleNamespace) -> None:
    y = room.weight
    for _ in range(k):
        y = (y * room.older[:n]).tanh()
    (y - 1).pow(2).mean().backward()
    with torch.no_grad():
        if not room.keep:
            room.keep.append(torch.zeros_like(room.weight))
        room.keep[0].mul_(0.9).add_(room.weight.grad)
        room.weight -= 0.1 * room.keep[0]


STEPS = {
    step.__name__: step
    for step in (
        temporaries,
        kept,
        middle,
        views,
        dtypes,
        first_time,
        reads_older,
        adds_to_older,
        forward_only,
        backward_too,
        training_step,
    )
}


def measured(answers: SimpleNamespace, kind: str, n: int, k: int) -> dict[str, Any]:
    """One step, made anew, and what the answer says of it."""
    device = "cuda" if torch.cuda.is_available() else "cpu"
    room = SimpleNamespace(device=device, keep=[], older=torch.ones(11 * n // 2, device=device))
    room.weight = torch.full((n,), 0.5, device=device, requires_grad=True)
    calls = []

    def counted() -> None:
        calls.append(None)
        STEPS[kind](n, k, room)

    got = as_number(answers.measured_peak(counted))
    return {"got": got, "calls": len(calls)}


def drive_peak(answers: SimpleNamespace, inputs: dict[str, Any]) -> Any:
    return [measured(answers, *arguments) for arguments in inputs["steps"]]


# -- on the judge's side ----------------------------------------------------------------------------------

#: kind of step → in units of n float32 elements, for a k: its peak, what is left at its end, all that it makes.
#: The tests hold these against the meter.
_UNITS: dict[str, Callable[[int], dict[str, float]]] = {
    "temporaries": lambda k: {"peak": 3, "end": 0, "made": 1 + 3 * k},
    "kept": lambda k: {"peak": 1 + k, "end": 1, "made": 1 + k},
    "middle": lambda k: {"peak": k, "end": 1, "made": k + 2},
    "views": lambda k: {"peak": 2, "end": 0, "made": 2},
    "dtypes": lambda k: {"peak": 3, "end": 0, "made": 3},
    "first_time": lambda k: {"peak": k + 1, "end": k, "made": k + 1},
    "reads_older": lambda k: {"peak": 1, "end": 0, "made": k},
    "adds_to_older": lambda k: {"peak": 1 + k, "end": 1, "made": 1 + k},
    "forward_only": lambda k: {"peak": k, "end": k - 1, "made": k},
    "backward_too": lambda k: {"peak": k + 2, "end": 1, "made": 3 * k},
    "training_step": lambda k: {"peak": k + 5, "end": 2, "made": 4 * k + 8},
}
#: Float32 elements, in the same units, that live before every step.
_OLDER = 6.5


def units(kind: str, k: int) -> dict[str, float]:
    """What a step of that kind does, in units of n float32 elements."""
    return _UNITS[kind](k)


def peak_cases(rng: random.Random) -> list[Case]:
    def size() -> int:
        return rng.randrange(2**17, 2**18, 1024)

    def case(name: str, judgement: str, *steps: tuple[str, int], hidden: bool = False) -> Case:
        return Case(name, [{"steps": [(kind, size(), k) for kind, k in steps]}], (judgement,), hidden=hidden)

    def drawn(*kinds: str) -> list[tuple[str, int]]:
        return [(kind, rng.randint(2, 5)) for kind in kinds]

    return [
        case("temporaries come and go", PEAK, ("temporaries", 3)),
        case("views of one storage", PEAK, ("views", 1)),
        case("one tensor stays, a larger one goes", PEAK, ("kept", 3)),
        case("the peak is in the middle", PEAK, ("middle", 4)),
        case("bfloat16, float64 and bool", PEAK, ("dtypes", 1)),
        case("the first step makes what stays", PEAK, ("first_time", 4)),
        case("reads a tensor that lived before", BEFORE, ("reads_older", 2)),
        case("two steps, one after the other", BEFORE, ("adds_to_older", 2), ("kept", 2)),
        case("a forward of 6 operators", AUTOGRAD, ("forward_only", 6)),
        case("forward and backward", AUTOGRAD, ("backward_too", 5)),
        case("forward, backward and momentum", AUTOGRAD, ("training_step", 3)),
        case("other sizes", PEAK, *drawn("temporaries", "kept", "middle", "first_time"), hidden=True),
        case("other steps beside older tensors", BEFORE, *drawn("adds_to_older", "reads_older", "kept"), hidden=True),
        case("other forwards and backwards", AUTOGRAD, *drawn("forward_only", "backward_too", "training_step"),
             hidden=True),
    ]  # fmt: skip


def _peak(case: Case, seen: Observation) -> str | None:
    for (kind, n, k), result in zip(case.inputs[0]["steps"], seen.results[0], strict=True):
        got, unit, steps = result["got"], 4 * n, units(kind, k)
        if type(got) is not float:
            hint = " Is a `return` missing?" if got is None else ""
            return f"It returned {compare.describe(got)}; a number of bytes was expected.{hint}"
        right = steps["peak"] * unit
        if abs(got - right) <= 0.1 * right:
            continue
        cause = _cause(case, got / unit, steps, result["calls"])
        if case.hidden:
            return f"A step's peak is wrong. {cause}"
        return f"It measured {got:,.0f} bytes; {right:,.0f} were alive at the peak. {cause}"
    return None


def _cause(case: Case, got: float, steps: dict[str, float], calls: int) -> str:
    """The likeliest cause of a wrong peak; ``got`` in units."""

    def near(value: float) -> bool:
        return abs(got - value) <= 0.03 * max(value, 1)

    peak, end = steps["peak"], steps["end"]
    if calls != 1:
        return f"`step` was called {calls} times. Call it once: a step may make in its first run what then stays."
    if any(abs(got * scale - peak) < 0.03 * peak for scale in (2**10, 2**20, 2**30, 1e3, 1e6, 1e9)):
        return "That is in KiB, MiB or the like; bytes were asked for."
    if near(end) or near(0):
        return (
            "That is what is left when the step is over. The peak lies in between: look after every operator, "
            "and keep the largest."
        )
    older = "What lived before the step is in it: subtract `rankzero.live_bytes()` from before."
    if near(peak + _OLDER) or near(end + _OLDER):
        return older
    if "views" in case.name:
        return "Views share one storage: count storages, each once, and not tensors."
    if got > peak + _OLDER:
        return older
    if near(peak / 4) or ("bool" in case.name and got < peak):
        return "Is that the number of elements? Each has `element_size()` bytes."
    if near(steps["made"]) or got > peak:
        return (
            "That is more than was ever alive at once: what dies in between counts no more, and what an operator "
            "changes in place, or views, is no new storage."
        )
    if AUTOGRAD in case.judgements:
        return (
            "Tensors that only autograd holds, or that live only during backward, are missing: look after every "
            "operator, in a `TorchDispatchMode` that is on during the whole step."
        )
    return "Temporaries are missing: look after every operator, while its result and its inputs are still there."


MEASURED_PEAK = Exercise(
    id="measured_peak",
    lesson=LESSON,
    names=("measured_peak",),
    judgements=(Judgement(PEAK, 1, _peak), Judgement(BEFORE, 1, _peak), Judgement(AUTOGRAD, 1, _peak)),
    cases=peak_cases,
    drive=drive_peak,
    process_group=False,
)
