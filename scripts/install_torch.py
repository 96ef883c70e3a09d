"""Install torch into this Python, never a CUDA build where there is no NVIDIA GPU.

pip is first asked what it would take (a dry run with a report). Without a GPU that is installed only if it
is a CPU build; a CUDA build, several gigabytes, is refused with the ways out named. ``TORCH_INDEX_URL``
names an index to take torch from; then that index's build is taken as it is.
"""

from __future__ import annotations

import importlib.metadata
import json
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

CONSTRAINTS = Path(__file__).resolve().parent.parent / "constraints.txt"

HELP = """\
pip would download the CUDA build of torch, several gigabytes, and there is no NVIDIA GPU here.
Do one of these, then run make again:
  - look up the address of the CPU builds' index under "Compute Platform: CPU" at
    https://pytorch.org/get-started/locally/ and run:  make TORCH_INDEX_URL=<that address>
  - use conda:  conda env create -f environment.yml
  - put a torch of your own choice into .venv:  .venv/bin/python -m pip install torch
"""


def pinned(text: str) -> str:
    """The requirement that a constraints file holds for torch, such as "torch==2.13.0"."""
    return next(line.strip() for line in text.splitlines() if re.match(r"torch\s*==", line))


def has_gpu() -> bool:
    """Whether an NVIDIA GPU answers."""
    smi = shutil.which("nvidia-smi")
    return smi is not None and subprocess.run([smi, "-L"], capture_output=True).returncode == 0


def is_cpu_build(report: dict) -> bool:
    """Whether what pip's report would install is torch without CUDA: no NVIDIA or Triton package with it."""
    names = [item["metadata"]["name"].lower() for item in report["install"]]
    torch = next(item for item in report["install"] if item["metadata"]["name"].lower() == "torch")
    if "+cu" in torch["metadata"]["version"]:
        return False
    needs_cuda = any(
        re.match(r"(nvidia|cuda|triton)", need) and applies_here(need)
        for need in torch["metadata"].get("requires_dist", [])
    )
    return not needs_cuda and not any(name.startswith(("nvidia", "cuda", "triton")) for name in names)


def applies_here(requirement: str) -> bool:
    """Whether a requirement's marker holds on this machine; torch's CUDA needs are bound to Linux on x86-64 or ARM."""
    marker = requirement.partition(";")[2]
    system = re.search(r"(?:platform_system|sys_platform)\s*==\s*['\"](\w+)['\"]", marker)
    return "extra ==" not in marker and (system is None or system.group(1).lower() == sys.platform.lower())


def main() -> int:
    """Install torch if it is not there. Returns an exit status."""
    wanted = pinned(CONSTRAINTS.read_text())
    try:
        print(f"torch {importlib.metadata.version('torch')} is there already")
        return 0
    except importlib.metadata.PackageNotFoundError:
        pass
    pip = [sys.executable, "-m", "pip", "install", "--quiet", "--disable-pip-version-check"]
    index = os.environ.get("TORCH_INDEX_URL")
    if index:
        print(f"installing {wanted} from TORCH_INDEX_URL")
        # Its own dependencies come from the usual index: the build's index need not hold them.
        without = subprocess.run([*pip, "--no-deps", "--index-url", index, wanted]).returncode
        return without or subprocess.run([*pip, "-c", str(CONSTRAINTS), wanted]).returncode
    if not has_gpu():
        print(f"no NVIDIA GPU here: asking pip whether its {wanted} is a CPU build")
        asked = subprocess.run([*pip, "--dry-run", "--report", "-", wanted], capture_output=True, text=True)
        if asked.returncode:
            print(asked.stderr, file=sys.stderr)
            return asked.returncode
        if not is_cpu_build(json.loads(asked.stdout)):
            print(HELP, file=sys.stderr)
            return 1
    print(f"installing {wanted}")
    return subprocess.run([*pip, "-c", str(CONSTRAINTS), wanted]).returncode


if __name__ == "__main__":
    sys.exit(main())
