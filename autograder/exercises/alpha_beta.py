"""Exercises on time: fit alpha and beta, predict a ring, and tell its bus bandwidth."""

from __future__ import annotations

import random
from types import SimpleNamespace
from typing import Any

from autograder import compare
from autograder.exercise import Case, Exercise, Judgement
from autograder.exercises.common import as_number
from autograder.exercises.formulas import formula_case, formula_verdict
from rankzero.observe.observation import Observation

LESSON = "04_collectives"

# -- fit_alpha_beta ---------------------------------------------------------------------------------------

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
    def run(count: int, outlier: float | None = None, times: tuple[float, float] = (2, 3)) -> dict[str, Any]:
        alpha, beta = 10 ** rng.uniform(-5.3, -3.7), 10 ** rng.uniform(8.5, 10.5)
        sizes = [round(0.05 * 60 ** (place / (count - 1)) * alpha * beta) for place in range(count)]
        seconds = [(alpha + size / beta) * (1 + rng.uniform(-0.01, 0.01)) for size in sizes]
        if outlier is not None:
            seconds[round(outlier * (count - 1))] *= rng.uniform(*times)
        # In any order, but never from small to large: a line through the first and the last must not do.
        order = [1, *rng.sample(range(2, count), count - 2), 0]
        return {"run": ([sizes[i] for i in order], [seconds[i] for i in order]), "truth": (alpha, beta)}

    def case(name: str, runs: list[dict[str, Any]], judgement: str, hidden: bool = False) -> Case:
        truths = [run["truth"] for run in runs]
        return Case(name, [{"runs": [run["run"] for run in runs]}], (judgement,), truths, hidden=hidden)

    return [
        case("8 sizes", [run(8), run(8)], CLEAN),
        case("5 sizes", [run(5), run(5)], CLEAN),
        case("the largest message was slow once", [run(9, 1.0, (4, 8))], OUTLIER),
        case("a message of middle size was slow once", [run(9, 0.5)], OUTLIER),
        case("the smallest message was slow once", [run(9, 0.0)], OUTLIER),
        case("other machines", [run(count) for count in (5, 6, 10, 16)], CLEAN, hidden=True),
        case("one slow message somewhere", [run(9, rng.random()) for _ in range(4)], OUTLIER, hidden=True),
        case("one slow message among few", [run(7, 0.5), run(7, 0.0)], OUTLIER, hidden=True),
    ]


def _fit(case: Case, seen: Observation) -> str | None:
    for got, (alpha, beta) in zip(seen.results[0], case.expected, strict=True):
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
                shown = "not within 10 %" if case.hidden else f"{mine[name]:.3g}; {right:.3g} {unit} was expected"
                return f"{name.capitalize()} is {shown}. {_fit_cause(name, mine[name], right, case)}"
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
    names=("fit_alpha_beta",),
    judgements=(Judgement(CLEAN, 1, _fit), Judgement(OUTLIER, 1, _fit)),
    cases=fit_cases,
    drive=drive_fit,
    process_group=False,
)

# -- ring_seconds and bus_bandwidth: formulas -------------------------------------------------------------

LATENCY = "latency: a step costs alpha"
BANDWIDTH = "bandwidth: each rank sends 2(n−1)/n of the bytes"


def drive_ring_seconds(answers: SimpleNamespace, inputs: dict[str, Any]) -> Any:
    return [as_number(answers.ring_seconds(*arguments)) for arguments in inputs["calls"]]


def drive_bus_bandwidth(answers: SimpleNamespace, inputs: dict[str, Any]) -> Any:
    return [as_number(answers.bus_bandwidth(*arguments)) for arguments in inputs["calls"]]


def ring_seconds_cases(rng: random.Random) -> list[Case]:
    def calls(count: int, least: int, most: int) -> list[tuple]:
        return [
            (
                rng.randint(least, most),
                rng.randint(3, 64),
                10 ** rng.uniform(-6, -4),
                10 ** rng.uniform(9, 11),
            )
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
    (
        lambda s, n, a, b: 2 * (n - 1) * s / (n * b),
        "The latency term is missing: every step also costs alpha.",
    ),
    (
        lambda s, n, a, b: a + 2 * (n - 1) * s / (n * b),
        "Alpha is counted once; it is paid in each of the 2(n−1) steps.",
    ),
    (lambda s, n, a, b: 2 * a + 2 * (n - 1) * s / (n * b), "Alpha is paid in each of the 2(n−1) steps."),
    (
        lambda s, n, a, b: (n - 1) * (a + s / (n * b)),
        "That is one loop around the ring; an all-reduce takes two.",
    ),
    (
        lambda s, n, a, b: 2 * (n - 1) * (a + s / b),
        "A step sends one piece of n_bytes / ranks, not the whole tensor.",
    ),
    (lambda s, n, a, b: 2 * n * (a + s / (n * b)), "Each loop has n−1 steps, not n."),
    (lambda s, n, a, b: a + s / b, "That is one message from rank to rank, not a ring."),
    (lambda s, n, a, b: 2 * (n - 1) * a + s / b, "The bytes that each rank sends are 2(n−1)/n · n_bytes."),
    (lambda s, n, a, b: 2 * (n - 1) * (a + s * b / n), "Beta is bytes per second: divide by it."),
    (lambda s, n, a, b: 2 * (n - 1) * (a + 8 * s / (n * b)), "Beta is in bytes per second here, not bits."),
)


def _ring_seconds(case: Case, seen: Observation) -> str | None:
    return formula_verdict(case, seen, true_ring_seconds, "n_bytes, ranks, alpha, beta", RING_SLIPS)


RING_SECONDS = Exercise(
    id="ring_seconds",
    lesson=LESSON,
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
        formula_case("more ranks", [(6 * 10**8, 0.1, 6), (10**6, 1e-3, 4), (10**6, 1e-3, 3)], FACTOR),
        formula_case("1 rank", [(10**6, 0.5, 1)], FACTOR),
        formula_case("2 ranks, other sizes", calls(5, (2,)), PER_SECOND, hidden=True),
        formula_case("other numbers of ranks", calls(8, (3, 5, 16, 64, 1000)), FACTOR, hidden=True),
    ]


def true_bus_bandwidth(n_bytes: float, seconds: float, ranks: int) -> float:
    return 2 * (ranks - 1) / ranks * n_bytes / seconds


BUS_SLIPS = (
    (
        lambda s, t, n: s / t,
        "That is the algorithm bandwidth, n_bytes / seconds; times 2(n−1)/n it is the bus bandwidth.",
    ),
    (
        lambda s, t, n: (n - 1) / n * s / t,
        "(n−1)/n is the factor of all-gather and reduce-scatter; an all-reduce is both.",
    ),
    (lambda s, t, n: n / (2 * (n - 1)) * s / t, "The factor is upside down: 2(n−1)/n."),
    (
        lambda s, t, n: 2 * (n - 1) * s / t,
        "That is what all ranks send together; the bus bandwidth is per rank.",
    ),
    (lambda s, t, n: 2 * s / t, "The factor is 2(n−1)/n; it only comes near 2 for many ranks."),
    (lambda s, t, n: 8 * true_bus_bandwidth(s, t, n), "Those are bits; bytes per second were asked for."),
    (lambda s, t, n: true_bus_bandwidth(s, t, n) / 1e9, "That is in GB/s; bytes per second were asked for."),
    (
        lambda s, t, n: true_bus_bandwidth(s, t, n) / 2**30,
        "That is in GiB/s; bytes per second were asked for.",
    ),
    (lambda s, t, n: true_bus_bandwidth(s, t, n) * t * t, "Bytes are divided by seconds, not multiplied."),
    (lambda s, t, n: t / true_bus_bandwidth(s, 1, n), "That is seconds per byte: turn it round."),
)


def _bus_bandwidth(case: Case, seen: Observation) -> str | None:
    return formula_verdict(case, seen, true_bus_bandwidth, "n_bytes, seconds, ranks", BUS_SLIPS)


BUS_BANDWIDTH = Exercise(
    id="bus_bandwidth",
    lesson=LESSON,
    names=("bus_bandwidth",),
    judgements=(Judgement(PER_SECOND, 1, _bus_bandwidth), Judgement(FACTOR, 1, _bus_bandwidth)),
    cases=bus_bandwidth_cases,
    drive=drive_bus_bandwidth,
    process_group=False,
)
