"""What this machine can do, what it lacks, and the command that mends it: ``rankzero doctor``."""

from __future__ import annotations

import argparse
import importlib.metadata
import json
import os
import platform
import shutil
import socket
import subprocess
import sys
from collections.abc import Callable
from dataclasses import asdict, dataclass
from html import escape

GIB = 2**30
#: The oldest torch that the course claims to work with.
OLDEST_TORCH = (2, 8)
OLDEST_PYTHON = (3, 10)
#: What a learner cannot do without: a look at one of these that fails counts as missing.
NEEDED = {"Python", "torch", "backends", "ranks"}


@dataclass(frozen=True)
class Finding:
    """One thing that was looked at.

    ``state`` is "ok", "missing" (a learner needs it) or "optional" (something more would work with it).
    ``mend`` is the command, or the sentence, that would change it.
    """

    name: str
    state: str
    detail: str
    mend: str = ""


@dataclass(frozen=True)
class Findings:
    """Everything that was looked at; shows itself as a table."""

    findings: list[Finding]

    @property
    def ok(self) -> bool:
        """Whether nothing that a learner needs is missing."""
        return all(finding.state != "missing" for finding in self.findings)

    def text(self, colour: bool = False) -> str:
        """An aligned table; ``colour`` for a terminal."""
        width = max(len(finding.name) for finding in self.findings)
        codes = {"ok": "32", "missing": "31", "optional": "33"}
        lines = []
        for finding in self.findings:
            state = f"{finding.state:<8}"
            if colour:
                state = f"\x1b[{codes[finding.state]}m{state}\x1b[0m"
            lines.append(f"{finding.name:<{width}}  {state}  {finding.detail}")
            if finding.mend:
                lines.append(f"{'':<{width}}            {finding.mend}")
        lines.append("")
        lines.append("All that a learner needs is here." if self.ok else "Something that a learner needs is missing.")
        return "\n".join(lines)

    __repr__ = text

    def _repr_html_(self) -> str:
        colours = {"ok": "#1B78BC", "missing": "#D55E00", "optional": "#767676"}
        rows = "".join(
            f"<tr><td style='text-align:left'>{escape(one.name)}</td>"
            f"<td><b style='color:{colours[one.state]}'>{one.state}</b></td>"
            f"<td style='text-align:left'>{escape(one.detail)}"
            + (f"<br><code>{escape(one.mend)}</code>" if one.mend else "")
            + "</td></tr>"
            for one in self.findings
        )
        return f"<table>{rows}</table>"


def doctor() -> Findings:
    """Look at this machine. Takes a second or two, changes nothing, and survives odd machines."""
    return Findings([_safely(name, look) for name, look in _LOOKS.items()])


class Doctor:
    """say what this machine can do, and how to mend what is missing"""

    @staticmethod
    def add_arguments(parser: argparse.ArgumentParser) -> None:
        """Declare the options."""
        parser.add_argument("--json", action="store_true", help="print one JSON object")

    @staticmethod
    def run(args: argparse.Namespace) -> int:
        """Exit status: 0 if nothing that a learner needs is missing, else 1."""
        found = doctor()
        if args.json:
            print(json.dumps({"ok": found.ok, "findings": [asdict(finding) for finding in found.findings]}))
        else:
            print(found.text(colour=sys.stdout.isatty()))
        return 0 if found.ok else 1


def _safely(name: str, look: Callable[[], tuple[str, ...]]) -> Finding:
    try:
        return Finding(name, *look())
    except ModuleNotFoundError as error:
        state = "missing" if name in NEEDED else "optional"
        return Finding(name, state, f"cannot be looked at without {error.name}")
    except Exception as error:
        state = "missing" if name in NEEDED else "optional"
        return Finding(name, state, f"does not work here ({type(error).__name__}: {error})")


def _python() -> tuple[str, ...]:
    detail = f"{platform.python_version()} on {platform.system()} {platform.machine()}"
    if sys.version_info < OLDEST_PYTHON:
        return "missing", detail, f"install Python {'.'.join(map(str, OLDEST_PYTHON))} or newer"
    return "ok", detail


def _torch() -> tuple[str, ...]:
    try:
        import torch
    except ModuleNotFoundError:
        return "missing", "not installed", f"{_pip()} torch   (see pytorch.org for the build of your machine)"
    build = f"CUDA {torch.version.cuda}" if torch.version.cuda else "without CUDA"
    detail = f"{torch.__version__}, {build}"
    if tuple(map(int, torch.__version__.split(".")[:2])) < OLDEST_TORCH:
        return "missing", detail, f"{_pip()} --upgrade 'torch>={'.'.join(map(str, OLDEST_TORCH))}'"
    return "ok", detail


def _backends() -> tuple[str, ...]:
    import torch.distributed as dist

    if not dist.is_available() or not dist.is_gloo_available():
        return "missing", "this torch is built without gloo", "install a torch build with torch.distributed"
    return "ok", "gloo" + (", nccl" if dist.is_nccl_available() else "")


def _gpus() -> tuple[str, ...]:
    import torch

    if not torch.cuda.is_available():
        return "optional", "no NVIDIA GPU that torch can use; every exercise runs on the CPU"
    cards = []
    for index in range(torch.cuda.device_count()):
        card = torch.cuda.get_device_properties(index)
        native = "bf16" if card.major >= 8 else "no bf16: use fp16 with a GradScaler"
        cards.append(f"{card.name} {card.total_memory / GIB:.1f} GiB (sm_{card.major}{card.minor}, {native})")
    return "ok", "; ".join(cards)


def _peer_to_peer() -> tuple[str, ...]:
    import torch

    count = torch.cuda.device_count() if torch.cuda.is_available() else 0
    if count < 2:
        return "optional", "needs two GPUs"
    pairs = [(a, b) for a in range(count) for b in range(count) if a != b]
    direct = sum(torch.cuda.can_device_access_peer(a, b) for a, b in pairs)
    return "ok", f"{direct} of {len(pairs)} pairs of GPUs reach each other directly"


def _cores() -> tuple[str, ...]:
    usable = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    memory = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / GIB
    return "ok", f"{usable} cores, {memory:.1f} GiB memory"


def _shared_memory() -> tuple[str, ...]:
    if not os.path.isdir("/dev/shm"):
        return "optional", "no /dev/shm here; only data loaders with workers want it"
    size = shutil.disk_usage("/dev/shm").total
    detail = f"/dev/shm has {size / GIB:.2f} GiB"
    if size < GIB:
        return "optional", f"{detail}; data loaders with workers want more", "docker run --shm-size=2g …"
    return "ok", detail


def _loopback() -> tuple[str, ...]:
    with socket.create_server(("127.0.0.1", 0)) as server:
        socket.create_connection(server.getsockname(), timeout=2).close()
    name = socket.gethostname()
    try:
        socket.getaddrinfo(name, None)
    except OSError:
        interface = "lo0" if sys.platform == "darwin" else "lo"
        return (
            "optional",
            f"127.0.0.1 works, but the host's own name {name!r} does not resolve: torchrun may stall. "
            "Ranks started by rankzero are told the interface",
            f"export GLOO_SOCKET_IFNAME={interface}",
        )
    return "ok", "127.0.0.1 works, and the host's name resolves"


def _ranks() -> tuple[str, ...]:
    from rankzero.ranks import start

    if os.name != "posix":
        return "missing", "ranks need Linux or macOS", "open the course inside WSL 2"
    import rankzero

    rankzero.run(os.getpid, ranks=2, timeout=30)
    way = "forked from a warm server" if start.warm_fork() else "started one by one, seconds each"
    return "ok", f"two ranks have just met over gloo ({way})"


def _sandbox() -> tuple[str, ...]:
    found = shutil.which("bwrap")
    if found:
        tried = subprocess.run(
            [found, "--unshare-all", "--ro-bind", "/", "/", "true"], capture_output=True, timeout=10, text=True
        )
        if tried.returncode == 0:
            return "ok", "bubblewrap works"
        return "optional", f"bubblewrap is here but may not make namespaces: {tried.stderr.strip()[:120]}"
    return "optional", "no bubblewrap; instructors will want it for grading", "sudo apt-get install bubblewrap"


def _desk() -> tuple[str, ...]:
    have, lack = [], []
    for package in ("jupyterlab", "nbgrader", "jupytext", "ipywidgets"):
        try:
            have.append(f"{package} {importlib.metadata.version(package)}")
        except importlib.metadata.PackageNotFoundError:
            lack.append(package)
    if lack:
        return "optional", f"lacks {', '.join(lack)}", f"{_pip()} {' '.join(lack)}"
    return "ok", ", ".join(have)


def _browser() -> tuple[str, ...]:
    for name in ("chromium", "chromium-browser", "google-chrome"):
        if shutil.which(name):
            return "ok", shutil.which(name) or ""
    return "optional", "no Chromium; only the browser tests want it", "sudo apt-get install chromium"


def _pip() -> str:
    return f"{sys.executable} -m pip install"


_LOOKS: dict[str, Callable[[], tuple[str, ...]]] = {
    "Python": _python,
    "torch": _torch,
    "backends": _backends,
    "ranks": _ranks,
    "GPUs": _gpus,
    "GPU to GPU": _peer_to_peer,
    "processor": _cores,
    "shared memory": _shared_memory,
    "loopback": _loopback,
    "notebooks": _desk,
    "sandbox": _sandbox,
    "browser": _browser,
}
