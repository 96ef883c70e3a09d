"""Starting, all-reducing on and ending 2, 4, 8 ranks: rankzero.run against three other launchers.

Every launcher starts fresh processes, forms a gloo group, sums one float over the ranks, returns, and ends
them. Rounds alternate between the launchers, so that a machine that drifts drifts for all; medians are
shown. Bar: at 4 ranks rankzero.run is at least 20 times faster than torch.multiprocessing.spawn.

    python benchmarks/launch.py [--quick]
"""

from __future__ import annotations

import argparse
import contextlib
import os
import socket
import tempfile
import time

import torch
import torch.distributed as dist
import torch.multiprocessing as mp
from report import bar, finish, median, table

import rankzero

BAR_RANKS, BAR_RATIO = 4, 20.0


def all_reduce_one() -> float:
    """The work of each rank, in a group that is up."""
    total = torch.ones(1)
    dist.all_reduce(total)
    return total.item()


def in_own_group(rank: int, ranks: int, store: str) -> None:
    """The same for launchers that leave forming the group to the learner."""
    dist.init_process_group("gloo", init_method=f"file://{store}", rank=rank, world_size=ranks)
    assert all_reduce_one() == ranks
    dist.destroy_process_group()


def with_rankzero(ranks: int) -> None:
    """Ours; its server has been warmed up before."""
    assert rankzero.run(all_reduce_one, ranks=ranks) == [float(ranks)] * ranks


def with_spawn(ranks: int) -> None:
    """torch.multiprocessing.spawn."""
    with tempfile.TemporaryDirectory() as folder:
        mp.spawn(in_own_group, (ranks, f"{folder}/store"), nprocs=ranks)


def with_torchrunx(ranks: int) -> None:
    """torchrunx, on this host; it forms the group itself."""
    import torchrunx

    launcher = torchrunx.Launcher(hostnames=["localhost"], workers_per_host=ranks, backend="gloo")
    with tempfile.TemporaryDirectory() as folder, contextlib.chdir(folder):  # it leaves its logs where it stands
        results = launcher.run(all_reduce_one)
    assert results.rank(0) == ranks


def after_accelerate(ranks: int) -> None:
    """The work under accelerate, which sets the variables of a launch and leaves the group to its state."""
    from accelerate import PartialState

    PartialState(cpu=True)
    assert all_reduce_one() == ranks
    dist.destroy_process_group()


def with_notebook_launcher(ranks: int) -> None:
    """accelerate's notebook_launcher; it forks from this process."""
    from accelerate import notebook_launcher

    with socket.create_server(("127.0.0.1", 0)) as free:
        port = str(free.getsockname()[1])
    os.environ.update(ACCELERATE_USE_CPU="true", OMP_NUM_THREADS="1")
    notebook_launcher(after_accelerate, (ranks,), num_processes=ranks, use_port=port)


LAUNCHERS = {
    "rankzero.run": with_rankzero,
    "torch spawn": with_spawn,
    "torchrunx": with_torchrunx,
    "notebook_launcher": with_notebook_launcher,
}


def main() -> None:
    """Time all launchers, print the table and the bar."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--quick", action="store_true", help="4 ranks only, one round")
    quick = parser.parse_args().quick
    sizes, rounds = ([4], 1) if quick else ([2, 4, 8], 3)
    with_rankzero(2)
    rows, ratio = [], 0.0
    for ranks in sizes:
        seconds: dict[str, list[float]] = {name: [] for name in LAUNCHERS}
        for _ in range(rounds):
            for name, launch in LAUNCHERS.items():
                began = time.perf_counter()
                try:
                    launch(ranks)
                except Exception as error:
                    print(f"{name} failed at {ranks} ranks: {error}".splitlines()[0])
                    continue
                seconds[name].append(time.perf_counter() - began)
        ours = median(seconds["rankzero.run"])
        for name, measured in seconds.items():
            took = median(measured)
            rows.append([str(ranks), name, f"{took:.3f}", f"{took / ours:.1f}", str(len(measured))])
        if ranks == BAR_RANKS:
            ratio = median(seconds["torch spawn"]) / ours
    print(table(["ranks", "launcher", "median seconds", "times ours", "rounds"], rows))
    finish([bar(f"spawn's time over ours at {BAR_RANKS} ranks", ratio, BAR_RATIO, at_least=True)])


if __name__ == "__main__":
    main()
