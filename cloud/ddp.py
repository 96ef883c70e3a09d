"""Trains with your own HandDDP on two or more cards, or on this machine, and compares it with torch's.

    torchrun --standalone --nproc-per-node 2 ddp.py --answers my_ddp.py

my_ddp.py is a file with your HandDDP and what it uses, or your notebook of lesson 05 (05_ddp.ipynb). Needs nothing but
torch 2.8 or later: copy this one file to the machine. With a card for every rank it uses NCCL, otherwise gloo on the
CPU. Prints, for yours and for DistributedDataParallel, the step time, the collectives of a step with their bytes,
and the loss after the last one; ends with status 1 if the losses differ.

On Kaggle, whose two T4s are free: choose the accelerator "GPU T4 x2" and turn the internet on. Upload this file and
your notebook as a data set, and run in a cell, with the paths that Kaggle shows:

    !torchrun --standalone --nproc-per-node 2 /kaggle/input/NAME/ddp.py --answers /kaggle/input/NAME/05_ddp.ipynb

A T4 has no bf16, so there it trains in fp16 with a GradScaler; on newer cards in bf16; on a CPU in fp32. Choose with
--precision. If two or more RTX 4090 hang, put NCCL_P2P_DISABLE=1 before the command.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import statistics
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.nn.parallel import DistributedDataParallel

#: Methods of a process group through which a HandDDP may send gradients.
SENDING = ("allreduce", "reduce", "broadcast", "_allgather_base", "allgather", "_reduce_scatter_base", "reduce_scatter")


def load(path: Path) -> dict[str, Any]:
    """The names that a file defines, or the exercise cells of a notebook."""
    text = path.read_text(encoding="utf-8")
    sources = [text]
    if path.suffix == ".ipynb":
        cells = ["".join(cell["source"]) for cell in json.loads(text)["cells"] if cell["cell_type"] == "code"]
        sources = [cell for cell in cells if cell.startswith("# exercise: ") and "NotImplementedError" not in cell]
    names: dict[str, Any] = {"__name__": "answers"}
    for number, source in enumerate(sources, start=1):
        where = f"{path.name}, exercise cell {number}" if len(sources) > 1 else str(path)
        exec(compile(source, where, "exec"), names)
    return names


def precision_for(device: torch.device) -> str:
    """bf16 where the card has it, fp16 on older ones, fp32 on a CPU."""
    if device.type == "cpu":
        return "fp32"
    return "bf16" if torch.cuda.get_device_capability(device) >= (8, 0) else "fp16"


def make_model(options: argparse.Namespace, device: torch.device) -> nn.Sequential:
    """Equal blocks, with other weights on each rank: the wrapper must make them equal."""
    torch.manual_seed(dist.get_rank() + 1)
    layers = [part for _ in range(options.blocks) for part in (nn.Linear(options.width, options.width), nn.Tanh())]
    return nn.Sequential(*layers).to(device)


class Way:
    """One way to train: a wrapped model, and what ends its backward."""

    def __init__(self, model: nn.Module, finish: Callable[[], None], options: argparse.Namespace, device: torch.device):
        self.model, self.finish, self.options, self.device = model, finish, options, device
        self.optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
        self.scaler = torch.amp.GradScaler(device.type, enabled=options.precision == "fp16")

    def loss(self, batch: Tensor) -> Tensor:
        """The loss of a micro-batch, its share of the step's."""
        dtype = {"bf16": torch.bfloat16, "fp16": torch.float16}.get(self.options.precision, torch.float32)
        with torch.autocast(self.device.type, dtype=dtype, enabled=self.options.precision != "fp32"):
            return (self.model(batch) - batch).square().mean() / self.options.micro_batches

    def step(self, batches: list[Tensor]) -> float:
        """One optimizer step; only the last micro-batch communicates."""
        total = 0.0
        for number, batch in enumerate(batches):
            last = number == len(batches) - 1
            with contextlib.nullcontext() if last else self.model.no_sync():
                loss = self.loss(batch)
                self.scaler.scale(loss).backward()
            total += loss.item()  # waits for the card, too
        self.finish()  # before the scaler looks for infinities: all ranks must see the same ones
        self.scaler.step(self.optimizer)
        self.scaler.update()
        self.optimizer.zero_grad()
        if self.device.type == "cuda":
            torch.cuda.synchronize(self.device)
        return total


@contextlib.contextmanager
def counting(way: Way) -> Iterator[list[int]]:
    """Collects the bytes of each collective that the way makes meanwhile."""
    sent: list[int] = []
    if isinstance(way.model, DistributedDataParallel):  # it sends from C++, and tells only its own hook

        def hook(group, bucket):  # torch checks annotations, and does not read them as text
            from torch.distributed.algorithms.ddp_comm_hooks.default_hooks import allreduce_hook

            sent.append(bucket.buffer().nbytes)
            return allreduce_hook(group, bucket)

        way.model.register_comm_hook(dist.group.WORLD, hook)
        yield sent
        return
    # As they lie in the class: what getattr gives would not bind to a group again when it is put back.
    originals = {name: vars(dist.ProcessGroup)[name] for name in SENDING if name in vars(dist.ProcessGroup)}

    def counted(original: Callable) -> Callable:
        def call(group: Any, tensors: Any, *args: Any, **kwargs: Any) -> Any:
            sent.append(sum(tensor.nbytes for tensor in _flat(tensors)))
            return original(group, tensors, *args, **kwargs)

        return call

    for name, original in originals.items():
        setattr(dist.ProcessGroup, name, counted(original.__get__(None, dist.ProcessGroup)))
    try:
        yield sent
    finally:
        for name, original in originals.items():
            setattr(dist.ProcessGroup, name, original)


def _flat(tensors: Any) -> list[Tensor]:
    return [tensors] if isinstance(tensors, Tensor) else [one for part in tensors for one in _flat(part)]


def run(way: Way) -> tuple[float, list[int], float]:
    """Median seconds of a step, the bytes of each collective of one, and the loss after all."""
    options = way.options
    generator = torch.Generator().manual_seed(dist.get_rank())
    shape = (options.micro_batches, options.batch, options.width)
    batches = list(torch.randn(shape, generator=generator).to(way.device))
    seconds = []
    for number in range(options.steps + 2):
        dist.barrier()
        began = time.perf_counter()
        loss = way.step(batches)
        if number > 1:  # torch builds its buckets anew after the first step
            seconds.append(time.perf_counter() - began)
    with counting(way) as sent:
        loss = way.step(batches)
    return statistics.median(seconds), sent, loss


def over_ranks(value: float, op: Any, device: torch.device) -> float:
    """The largest, or the mean, of a number over all ranks."""
    tensor = torch.tensor(value, dtype=torch.float64, device=device)
    dist.all_reduce(tensor, op=op)
    return tensor.item() / (dist.get_world_size() if op == dist.ReduceOp.SUM else 1)


def main() -> None:
    """Train both ways, and print one line for each."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--answers", type=Path, required=True, help="a .py or .ipynb with your HandDDP")
    parser.add_argument("--width", type=int, default=2048, help="features of each block")
    parser.add_argument("--blocks", type=int, default=8)
    parser.add_argument("--batch", type=int, default=64, help="samples per rank and micro-batch")
    parser.add_argument("--micro-batches", type=int, default=1, help="per optimizer step")
    parser.add_argument("--steps", type=int, default=20)
    parser.add_argument("--precision", choices=("fp32", "fp16", "bf16"), help="default: by what the card has")
    options = parser.parse_args()
    local = int(os.environ.get("LOCAL_RANK", "0"))
    on_cards = torch.cuda.device_count() >= int(os.environ.get("LOCAL_WORLD_SIZE", "1"))
    device = torch.device("cuda", local) if on_cards else torch.device("cpu")
    if on_cards:
        torch.cuda.set_device(device)
    else:
        torch.set_num_threads(1)
    options.precision = options.precision or precision_for(device)
    answers = load(options.answers)
    if "HandDDP" not in answers:
        raise SystemExit(f"{options.answers} defines no HandDDP, or its cell is not finished yet")
    dist.init_process_group("nccl" if on_cards else "gloo")
    first, n = dist.get_rank() == 0, dist.get_world_size()
    if first:
        numel = options.blocks * (options.width * options.width + options.width)
        where = f"{n} ranks, {dist.get_backend()}, {options.precision}, torch {torch.__version__}"
        print(f"{numel:,} parameters, {4 * numel / 1e6:.1f} MB of gradients, {where}")
        print(f"{'way':28}{'ms/step':>9}{'calls':>7}{'MB in':>9}{'MB sent':>9}  loss", flush=True)
    losses = []
    for name in ("your HandDDP", "DistributedDataParallel"):
        model = make_model(options, device)
        if name == "your HandDDP":
            wrapped = answers["HandDDP"](model)
            way = Way(wrapped, wrapped.finish, options, device)
        else:
            wrapped = DistributedDataParallel(model, device_ids=[local] if on_cards else None)
            way = Way(wrapped, lambda: None, options, device)
        seconds, sent, loss = run(way)
        seconds = over_ranks(seconds, dist.ReduceOp.MAX, device)
        losses.append(over_ranks(loss, dist.ReduceOp.SUM, device))
        if first:
            on_wire = 2 * (n - 1) / n * sum(sent) / 1e6  # as a ring sends an all-reduce
            columns = f"{1e3 * seconds:9.1f}{len(sent):7}{sum(sent) / 1e6:9.1f}{on_wire:9.1f}"
            print(f"{name:28}{columns}  {losses[-1]:.7f}", flush=True)
    dist.destroy_process_group()
    mine, theirs = losses
    tolerance = 1e-5 if options.precision == "fp32" else 1e-2
    if not abs(mine - theirs) <= tolerance * abs(theirs):
        raise SystemExit(f"your HandDDP ends with another loss than torch's: {mine:.7f}, not {theirs:.7f}")


if __name__ == "__main__":
    main()
