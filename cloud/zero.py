"""Trains with your own ZeRO classes on rented cards, or on this machine, and compares them with torch's.

    torchrun --standalone --nproc-per-node 2 zero.py --answers my_zero.py

my_zero.py is a file with your ShardedAdamW, Zero2 and Zero3 and what they use, or your notebook of lesson 06
(06_zero.ipynb). Needs nothing but torch 2.8 or later: copy this one file to the machine. With a card for every
rank it uses NCCL, otherwise gloo on the CPU. Whatever is missing in your file is left out.
"""

from __future__ import annotations

import argparse
import gc
import json
import os
import statistics
import time
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor, nn

LR = 1e-3


def load(path: Path) -> dict[str, Any]:
    """The names that a file defines, or the exercise cells of a notebook."""
    text = path.read_text(encoding="utf-8")
    sources = [text]
    if path.suffix == ".ipynb":
        cells = ["".join(cell["source"]) for cell in json.loads(text)["cells"] if cell["cell_type"] == "code"]
        sources = [cell for cell in cells if cell.startswith("# exercise: ") and "NotImplementedError" not in cell]
    names: dict[str, Any] = {"__name__": "answers"}
    for number, source in enumerate(sources):
        exec(
            compile(source, f"{path.name}, exercise cell {number + 1}" if len(sources) > 1 else str(path), "exec"),
            names,
        )
    return names


class WholeGradients:
    """Whole weights and gradients, averaged by all-reduces; any optimizer: stages 0 and 1."""

    def __init__(self, model: nn.Module, optimizer: torch.optim.Optimizer):
        self.parameters = list(model.parameters())
        self.step, self.zero_grad = optimizer.step, optimizer.zero_grad

    def backward(self, loss: Tensor) -> None:
        loss.backward()
        for parameter in self.parameters:
            dist.all_reduce(parameter.grad)
            parameter.grad /= dist.get_world_size()


class Fsdp:
    """torch's fully_shard on every block and on the root."""

    def __init__(self, model: nn.Sequential, device: torch.device, reshard_after_forward: bool):
        from torch.distributed.device_mesh import init_device_mesh
        from torch.distributed.fsdp import fully_shard

        mesh = init_device_mesh(device.type, (dist.get_world_size(),))
        for block in (*model, model):
            fully_shard(block, mesh=mesh, reshard_after_forward=reshard_after_forward)
        optimizer = torch.optim.AdamW(model.parameters(), lr=LR)
        self.step, self.zero_grad = optimizer.step, optimizer.zero_grad

    def backward(self, loss: Tensor) -> None:
        loss.backward()


def make_model(width: int, blocks: int) -> nn.Sequential:
    """Equal blocks, the same on every rank."""
    torch.manual_seed(0)
    return nn.Sequential(*(nn.Sequential(nn.Linear(width, width), nn.Tanh()) for _ in range(blocks)))


def ways(names: dict[str, Any], device: torch.device) -> dict[str, Callable[[nn.Sequential], tuple[Any, Any]]]:
    """By name, what turns a model into its forward and what has its backward, step and zero_grad."""

    def redundancy(model: nn.Sequential) -> torch.optim.Optimizer:
        from torch.distributed.optim import ZeroRedundancyOptimizer

        return ZeroRedundancyOptimizer(model.parameters(), optimizer_class=torch.optim.AdamW, lr=LR)

    def of_zero3(model: nn.Sequential) -> tuple[Any, Any]:
        zero = names["Zero3"](model, lr=LR)
        return zero, zero

    every = {
        "stage 0: AdamW": lambda model: (model, WholeGradients(model, torch.optim.AdamW(model.parameters(), lr=LR))),
        "stage 1: your ShardedAdamW": lambda model: (
            model,
            WholeGradients(model, names["ShardedAdamW"](model.parameters(), lr=LR)),
        ),
        "stage 1: ZeroRedundancyOptimizer": lambda model: (model, WholeGradients(model, redundancy(model))),
        "stage 2: your Zero2": lambda model: (model, names["Zero2"](model, lr=LR)),
        "stage 2: fully_shard, no reshard": lambda model: (model, Fsdp(model, device, False)),
        "stage 3: your Zero3": of_zero3,
        "stage 3: fully_shard": lambda model: (model, Fsdp(model, device, True)),
    }
    return {name: make for name, make in every.items() if "your " not in name or name.split("your ")[1] in names}


def held_bytes(device: torch.device) -> int:
    """Bytes of tensors alive on this rank: the allocator's count on a card, distinct storages on a CPU."""
    gc.collect()
    if device.type == "cuda":
        return torch.cuda.memory_allocated(device)
    tensors = [one for one in gc.get_objects() if type(one) in (Tensor, nn.Parameter)]
    storages = {one.untyped_storage()._cdata: one.untyped_storage().nbytes() for one in tensors}
    return sum(storages.values())


def run(make: Callable, options: argparse.Namespace, device: torch.device) -> tuple[float, int, int | None, float]:
    """Seconds of a step, bytes between two steps, bytes at the peak (cards only), and the loss at the end."""
    base = held_bytes(device)
    forward, zero = make(make_model(options.width, options.blocks))
    generator = torch.Generator().manual_seed(dist.get_rank())
    batch = torch.randn(options.batch, options.width, generator=generator, device="cpu").to(device)
    seconds = []
    for step in range(options.steps + 1):
        if step == 1 and device.type == "cuda":
            torch.cuda.reset_peak_memory_stats(device)
        dist.barrier()
        began = time.perf_counter()
        loss = forward(batch).square().mean()
        zero.backward(loss)
        zero.step()
        zero.zero_grad()
        last = loss.item()  # waits for the card, too
        del loss
        if device.type == "cuda":
            torch.cuda.synchronize(device)
        seconds.append(time.perf_counter() - began)
    peak = torch.cuda.max_memory_allocated(device) - base if device.type == "cuda" else None
    return statistics.median(seconds[1:]), held_bytes(device) - base, peak, last


def slowest(value: float, device: torch.device) -> float:
    """The largest value of all ranks."""
    tensor = torch.tensor(value, dtype=torch.float64, device=device)
    dist.all_reduce(tensor, op=dist.ReduceOp.MAX)
    return tensor.item()


def main() -> None:
    """Train in all ways, and print one line for each."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--answers", type=Path, required=True, help="a .py or .ipynb with your classes")
    parser.add_argument("--width", type=int, default=2048, help="features of each block")
    parser.add_argument("--blocks", type=int, default=8)
    parser.add_argument("--batch", type=int, default=32, help="samples per rank")
    parser.add_argument("--steps", type=int, default=10)
    options = parser.parse_args()
    warnings.simplefilter("ignore", FutureWarning)  # torch 2.13 has new names for calls that 2.8 knows by the old ones
    local = int(os.environ.get("LOCAL_RANK", "0"))
    on_cards = torch.cuda.device_count() >= int(os.environ.get("LOCAL_WORLD_SIZE", "1"))
    device = torch.device("cuda", local) if on_cards else torch.device("cpu")
    if on_cards:
        torch.cuda.set_device(device)
    else:
        torch.set_num_threads(1)
    dist.init_process_group("nccl" if on_cards else "gloo")
    torch.set_default_device(device)  # so that buffers which your classes make lie on the card
    first = dist.get_rank() == 0
    parameters = options.blocks * (options.width * options.width + options.width)
    if first:
        where = f"{dist.get_world_size()} ranks, {dist.get_backend()}"
        print(f"{parameters:,} parameters in fp32 ({4 * parameters / 1e6:.1f} MB), {where}, torch {torch.__version__}")
        print(f"{'way':34}{'ms/step':>9}{'kept MB':>9}{'peak MB':>9}  loss", flush=True)
    losses = {}
    for name, make in ways(load(options.answers), device).items():
        seconds, kept, peak, losses[name] = run(make, options, device)
        seconds, kept = slowest(seconds, device), slowest(kept, device)
        shown = "" if peak is None else f"{slowest(peak, device) / 1e6:.1f}"
        if first:
            print(f"{name:34}{1e3 * seconds:9.1f}{kept / 1e6:9.1f}{shown:>9}  {losses[name]:.7f}", flush=True)
        gc.collect()
        if on_cards:
            torch.cuda.empty_cache()
    right = losses["stage 0: AdamW"]
    odd = [name for name, loss in losses.items() if abs(loss - right) > 1e-3 * abs(right) + 1e-7]
    dist.destroy_process_group()
    if odd:
        raise SystemExit(f"another loss than stage 0 on rank {local}: {', '.join(odd)}")


if __name__ == "__main__":
    main()
