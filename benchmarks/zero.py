"""Lesson 06's references against torch: ShardedAdamW and ZeroRedundancyOptimizer, Zero2 and Zero3 and fully_shard.

Both train the same model of 20 million parameters on the same batches, in the same processes, in turn; the order
changes from step to step. Times are medians, over the steps, of the slowest rank's; bytes come from a watched run of
its own. Bars: ZeRO-1 takes no longer than ZeroRedundancyOptimizer, ZeRO-3 at most 1.1 times as long as fully_shard,
and what a rank keeps between steps is within 1 % of theory.

    python benchmarks/zero.py [--quick] [--ranks N …]
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

import rankzero
from autograder.lessons import reference

WIDTH, BLOCKS, BATCH = 1584, 8, 16
PARAMETERS = BLOCKS * (WIDTH * WIDTH + WIDTH)
LR = 1e-3
MB = 1e6


@dataclass
class Trainer:
    """One way to train: what a step does, in three parts."""

    forward: Callable[[Tensor], Tensor]
    backward: Callable[[Tensor], None]
    step: Callable[[], None]
    zero_grad: Callable[[], None]

    def train(self, batch: Tensor) -> None:
        """One step on this rank's batch."""
        loss = self.forward(batch).square().mean()
        self.backward(loss)
        del loss
        self.step()
        self.zero_grad()


def make_blocks() -> nn.Sequential:
    """Eight equal blocks, the same on every rank."""
    torch.manual_seed(0)
    return nn.Sequential(*(nn.Sequential(nn.Linear(WIDTH, WIDTH), nn.Tanh()) for _ in range(BLOCKS)))


def averaged(parameters: list[nn.Parameter]) -> Callable[[Tensor], None]:
    """Backward, then the mean of the gradients over the ranks: the same for both optimizers of stage 1."""

    def backward(loss: Tensor) -> None:
        loss.backward()
        works = [dist.all_reduce(parameter.grad, async_op=True) for parameter in parameters]
        for work, parameter in zip(works, parameters, strict=True):
            work.wait()
            parameter.grad /= dist.get_world_size()

    return backward


def stage1(optimizer_of: Callable[[list[nn.Parameter]], torch.optim.Optimizer]) -> Trainer:
    model = make_blocks()
    parameters = list(model.parameters())
    optimizer = optimizer_of(parameters)
    return Trainer(model, averaged(parameters), optimizer.step, optimizer.zero_grad)


def redundancy_optimizer(parameters: list[nn.Parameter], **more: bool) -> torch.optim.Optimizer:
    from torch.distributed.optim import ZeroRedundancyOptimizer

    return ZeroRedundancyOptimizer(parameters, optimizer_class=torch.optim.AdamW, lr=LR, **more)


def stage2(zero2: type) -> Trainer:
    model = make_blocks()
    zero = zero2(model, lr=LR)
    return Trainer(model, zero.backward, zero.step, zero.zero_grad)


def stage3(zero3: type) -> Trainer:
    zero = zero3(make_blocks(), lr=LR)
    return Trainer(zero, zero.backward, zero.step, zero.zero_grad)


def fsdp(reshard_after_forward: bool) -> Trainer:
    """``fully_shard`` on every block and on the root."""
    from torch.distributed.device_mesh import init_device_mesh
    from torch.distributed.fsdp import fully_shard

    mesh = init_device_mesh("cpu", (dist.get_world_size(),))
    model = make_blocks()
    for block in model:
        fully_shard(block, mesh=mesh, reshard_after_forward=reshard_after_forward)
    fully_shard(model, mesh=mesh, reshard_after_forward=reshard_after_forward)
    optimizer = torch.optim.AdamW(model.parameters(), lr=LR)
    return Trainer(model, Tensor.backward, optimizer.step, optimizer.zero_grad)


@dataclass(frozen=True)
class Comparison:
    """A stage, the lesson's class for it and torch's way, and the most that the ratio of their times may be."""

    stage: int
    ours: str
    theirs: str
    most_ratio: float | None = None
    fused: bool = False

    def makers(self, answer: type) -> tuple[Callable[[], Trainer], Callable[[], Trainer]]:
        """What makes ours, and what makes theirs."""
        if self.stage == 1:
            more = {"fused": True} if self.fused else {}
            return (
                lambda: stage1(lambda parameters: answer(parameters, lr=LR)),
                lambda: stage1(lambda parameters: redundancy_optimizer(parameters, **more)),
            )
        if self.stage == 2:
            return lambda: stage2(answer), lambda: fsdp(reshard_after_forward=False)
        return lambda: stage3(answer), lambda: fsdp(reshard_after_forward=True)

    def theory(self, which: int, ranks: int) -> float:
        """Bytes of weights and states, all float32, that a rank keeps between two steps."""
        whole_weights = self.stage == 1 or (self.stage, which) == (2, 0)  # fully_shard always keeps shards only
        return PARAMETERS * (4 + 8 / ranks if whole_weights else 12 / ranks)


COMPARISONS = (
    Comparison(1, "ShardedAdamW", "ZeroRedundancyOptimizer", 1.0),
    Comparison(2, "Zero2", "fully_shard, no reshard"),
    Comparison(3, "Zero3", "fully_shard", 1.1),
)
#: ShardedAdamW uses the fused AdamW; whoever asks ZeroRedundancyOptimizer for the same gets this.
FUSED = Comparison(1, "ShardedAdamW", "ZeroRedundancyOptimizer, fused", fused=True)


def batch_of_this_rank() -> Tensor:
    return torch.randn(BATCH, WIDTH, generator=torch.Generator().manual_seed(dist.get_rank()))


def time_both(comparison: Comparison, answer: type, rounds: int) -> list[tuple[float, float]]:
    """On a rank: seconds per step of ours and of torch's, round by round."""
    trainers = [make() for make in comparison.makers(answer)]
    batch = batch_of_this_rank()
    for trainer in trainers:
        trainer.train(batch)
    taken = []
    for number in range(rounds):
        pair = [0.0, 0.0]
        for which in (0, 1) if number % 2 else (1, 0):
            dist.barrier()
            began = time.perf_counter()
            trainers[which].train(batch)
            pair[which] = time.perf_counter() - began
        taken.append(tuple(pair))
    return taken


def watched(comparison: Comparison, answer: type, which: int) -> tuple[int, int, int, int]:
    """On a watched rank: first and last message of the second step, bytes kept after it, its peak."""
    trainer = comparison.makers(answer)[which]()
    batch = batch_of_this_rank()
    trainer.train(batch)
    gc.collect()
    before = rankzero.moment(restart_peak=True)
    trainer.train(batch)
    peak = rankzero.moment().peak_bytes
    gc.collect()
    after = rankzero.moment()
    return before.calls, after.calls, after.live_bytes, peak


def bytes_of(comparison: Comparison, answer: type, which: int, ranks: int) -> tuple[float, float, float]:
    """Bytes sent, kept and alive at the peak of a step, on the rank with the most of each."""
    seen = rankzero.watch(watched, comparison, answer, which, ranks=ranks, timeout=120)
    sent = [
        sum(message.sent_bytes for message in seen.of_rank(rank)[first:last])
        for rank, (first, last, _, _) in enumerate(seen.results)
    ]
    return max(sent), max(kept for _, _, kept, _ in seen.results), max(peak for *_, peak in seen.results)


def main() -> None:
    """Time and watch all, print the table and the bars."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--quick", action="store_true", help="fewer steps; torch's ways are timed, not watched")
    parser.add_argument("--ranks", type=int, nargs="+", default=[2, 4])
    options = parser.parse_args()
    launches, rounds = (1, 3) if options.quick else (3, 12)
    answers = reference("06_zero")
    rows, bars = [], []
    for ranks in options.ranks:
        for comparison in COMPARISONS if options.quick else (*COMPARISONS, FUSED):
            answer, names = answers[comparison.ours], (comparison.ours, comparison.theirs)
            pairs = []
            for _ in range(launches):
                by_rank = rankzero.run(time_both, comparison, answer, rounds, ranks=ranks, timeout=300, record=False)
                pairs += [tuple(map(max, zip(*of_ranks, strict=True))) for of_ranks in zip(*by_rank, strict=True)]
            ratio = median([ours / theirs for ours, theirs in pairs])
            for which, name in enumerate(names):
                theory, seconds = comparison.theory(which, ranks), median([pair[which] for pair in pairs])
                watch_it = which == 0 or not options.quick
                nothing = (float("nan"),) * 3
                sent, kept, peak = bytes_of(comparison, answer, which, ranks) if watch_it else nothing
                shown = ["-" if amount != amount else f"{amount / MB:.1f}" for amount in (sent, kept, theory, peak)]
                rows.append([str(ranks), name, f"{1e3 * seconds:.0f}", "" if which else f"{ratio:.2f}", *shown])
                if which == 0 and not comparison.fused:
                    off = 100 * abs(kept / theory - 1)
                    bars.append((f"{name}, {ranks} ranks: bytes kept, per cent off theory", off, 1.0))
            if comparison.most_ratio:
                name = f"step time of {names[0]} over {names[1]}, {ranks} ranks"
                bars.append((name, ratio, comparison.most_ratio))
    head = ["ranks", "way", "ms/step", "ratio", "sent MB", "kept MB", "theory MB", "peak MB"]
    print(f"{PARAMETERS:,} parameters, float32; bytes per rank, sent in one step, kept between two")
    print(table(head, rows))
    finish([bar(name, figure, limit, at_least=False) for name, figure, limit in bars])


if __name__ == "__main__":
    main()
