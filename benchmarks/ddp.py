"""Lesson 05's reference HandDDP against DistributedDataParallel: step time, bytes sent, live bytes.

Both train the same model of 20 million parameters on the same batches, in the same processes, in turn; the order
changes from step to step. Times are medians, over the steps, of the slowest rank's; bytes come from a watched run of
its own. Bars: a step takes at most 1.05 times as long as torch's, and a rank sends no more bytes.

    python benchmarks/ddp.py [--quick] [--ranks N …]
"""

from __future__ import annotations

import argparse
import gc
import time
from collections.abc import Callable
from dataclasses import dataclass

import torch
import torch.distributed as dist
from report import bar, finish, median, table
from torch import Tensor, nn
from torch.nn.parallel import DistributedDataParallel

import rankzero
from autograder.lessons import reference

WIDTH, BLOCKS, BATCH = 1584, 8, 16
PARAMETERS = BLOCKS * (WIDTH * WIDTH + WIDTH)
MB = 1e6


@dataclass
class Trainer:
    """A model with its optimizer; ``finish`` is what comes between backward and the optimizer."""

    model: nn.Module
    finish: Callable[[], None]

    def __post_init__(self) -> None:
        self.optimizer = torch.optim.SGD(self.model.parameters(), lr=0.01)

    def train(self, batch: Tensor) -> None:
        """One step on this rank's batch."""
        self.model(batch).square().mean().backward()
        self.finish()
        self.optimizer.step()
        self.optimizer.zero_grad()


def make_model() -> nn.Module:
    """Eight equal blocks, the same on every rank."""
    torch.manual_seed(0)
    return nn.Sequential(*(nn.Sequential(nn.Linear(WIDTH, WIDTH), nn.Tanh()) for _ in range(BLOCKS)))


def by_hand(hand_ddp: type) -> Trainer:
    model = hand_ddp(make_model())
    return Trainer(model, model.finish)


def by_torch(**more: bool) -> Trainer:
    return Trainer(DistributedDataParallel(make_model(), **more), lambda: None)


#: By name, what makes a trainer from the reference HandDDP. Ours comes first; what has a bar, second.
WAYS = {
    "HandDDP": by_hand,
    "DistributedDataParallel": lambda _: by_torch(),
    "the same, gradients as bucket views": lambda _: by_torch(gradient_as_bucket_view=True),
}
OURS, TORCHS, _ = WAYS


def batch_of_this_rank() -> Tensor:
    return torch.randn(BATCH, WIDTH, generator=torch.Generator().manual_seed(dist.get_rank()))


def time_all(hand_ddp: type, rounds: int) -> list[dict[str, float]]:
    """On a rank: seconds per step of each way, round by round."""
    trainers = {name: make(hand_ddp) for name, make in WAYS.items()}
    batch = batch_of_this_rank()
    for trainer in (*trainers.values(), *trainers.values()):
        trainer.train(batch)  # twice: torch rebuilds its buckets after the first step
    names, taken = list(WAYS), []
    for number in range(rounds):
        turn = {}
        for place in range(len(names)):
            name = names[(number + place) % len(names)]
            dist.barrier()
            began = time.perf_counter()
            trainers[name].train(batch)
            turn[name] = time.perf_counter() - began
        taken.append(turn)
    return taken


def watched(hand_ddp: type, name: str) -> tuple[int, int, int]:
    """On a watched rank: the first and the last message of the third step, and its peak of live bytes."""
    trainer = WAYS[name](hand_ddp)
    batch = batch_of_this_rank()
    for _ in range(2):
        trainer.train(batch)
    gc.collect()
    before = rankzero.moment(restart_peak=True)
    trainer.train(batch)
    after = rankzero.moment()
    return before.calls, after.calls, after.peak_bytes


def bytes_of(hand_ddp: type, name: str, ranks: int) -> tuple[int, int, int]:
    """Calls and bytes of a step, and live bytes at its peak, on the rank with the most of each."""
    seen = rankzero.watch(watched, hand_ddp, name, ranks=ranks, timeout=120)
    steps = [seen.of_rank(rank)[first:last] for rank, (first, last, _) in enumerate(seen.results)]
    sent = [sum(message.sent_bytes for message in step) for step in steps]
    return max(map(len, steps)), max(sent), max(peak for *_, peak in seen.results)


def main() -> None:
    """Time and watch all, print the table and the bars."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--quick", action="store_true", help="fewer steps")
    parser.add_argument("--ranks", type=int, nargs="+", default=[2, 4])
    options = parser.parse_args()
    launches, rounds = (1, 9) if options.quick else (4, 15)
    hand_ddp = reference("05_ddp")["HandDDP"]
    rows, bars = [], []
    for ranks in options.ranks:
        turns = []
        for _ in range(launches):
            by_rank = rankzero.run(time_all, hand_ddp, rounds, ranks=ranks, timeout=300, record=False)
            turns += [{name: max(one[name] for one in turn) for name in WAYS} for turn in zip(*by_rank, strict=True)]
        sent = {}
        for name in WAYS:
            calls, sent[name], peak = bytes_of(hand_ddp, name, ranks)
            ratio = median([turn[OURS] / turn[name] for turn in turns])
            shown = [f"{1e3 * median([turn[name] for turn in turns]):.0f}", "" if name == OURS else f"{ratio:.2f}"]
            rows.append([str(ranks), name, *shown, str(calls), f"{sent[name] / MB:.1f}", f"{peak / MB:.1f}"])
            if name == TORCHS:
                bars.append((f"step time of {OURS} over torch's, {ranks} ranks", ratio, 1.05))
        bars.append((f"bytes sent by {OURS} over torch's, {ranks} ranks", sent[OURS] / sent[TORCHS], 1.0))
    print(f"{PARAMETERS:,} parameters, float32; calls, bytes sent and peak are those of one step on one rank")
    print(table(["ranks", "way", "ms/step", "ours / it", "calls", "sent MB", "peak MB"], rows))
    finish([bar(name, figure, limit, at_least=False) for name, figure, limit in bars])


if __name__ == "__main__":
    main()
