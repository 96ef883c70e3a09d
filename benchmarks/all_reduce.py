"""Lesson 04's reference ring all-reduce against gloo's own, 64 KiB to 64 MiB.

Both sum the same float32 tensors in the same processes, in turn; medians, over the rounds of several
launches, of the slowest rank's time. Bar: at 16 MiB and more the ring takes no longer than gloo.

    python benchmarks/all_reduce.py [--quick] [--ranks N]
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable

import torch
import torch.distributed as dist
from report import bar, finish, median, table

import rankzero
from autograder.lessons import reference

MIB = 2**20
BAR_BYTES, BAR_RATIO = 16 * MIB, 1.0
#: One launch can be some per cent faster or slower than the next, by where its memory lies; so there are several.
LAUNCHES, ROUNDS = 7, 9


def time_both(ring: Callable, n_bytes: int, rounds: int) -> list[tuple[float, float]]:
    """On a rank: seconds of the ring and of gloo, round by round."""
    tensor = torch.randn(n_bytes // 4)
    taken = []
    for round_number in range(rounds + 1):
        pair = []
        for all_reduce in (ring, dist.all_reduce) if round_number % 2 else (dist.all_reduce, ring):
            tensor.fill_(1.0)
            dist.barrier()
            began = time.perf_counter()
            all_reduce(tensor)
            pair.append(time.perf_counter() - began)
            assert tensor[-1] == dist.get_world_size()
        taken.append(tuple(pair) if round_number % 2 else tuple(reversed(pair)))
    return taken[1:]


def main() -> None:
    """Time both, print the table and the bars."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--quick", action="store_true", help="fewer sizes")
    parser.add_argument("--ranks", type=int, default=4)
    options = parser.parse_args()
    sizes = [MIB, 16 * MIB] if options.quick else [MIB // 16, MIB // 4, MIB, 4 * MIB, 16 * MIB, 64 * MIB]
    ring = reference("04_collectives")["ring_all_reduce"]
    rows, bars = [], []
    for n_bytes in sizes:
        pairs = []
        for _ in range(LAUNCHES):
            by_rank = rankzero.run(time_both, ring, n_bytes, ROUNDS, ranks=options.ranks, timeout=120, record=False)
            pairs += [tuple(map(max, zip(*of_ranks, strict=True))) for of_ranks in zip(*by_rank, strict=True)]
        ours, gloos = (median([pair[which] for pair in pairs]) for which in (0, 1))
        ratio = median([own / gloo for own, gloo in pairs])
        rows.append([f"{n_bytes / MIB:g}", f"{1e3 * ours:.2f}", f"{1e3 * gloos:.2f}", f"{ratio:.2f}"])
        if n_bytes >= BAR_BYTES:
            bars.append((f"ring's time over gloo's at {n_bytes // MIB} MiB, {options.ranks} ranks", ratio))
    print(table(["MiB", "ring ms", "gloo ms", "median ratio"], rows))
    finish([bar(name, ratio, BAR_RATIO, at_least=False) for name, ratio in bars])


if __name__ == "__main__":
    main()
