"""Install torch into this Python, never a CUDA build where there is no NVIDIA GPU.

pip is first asked what it would take (a dry run with a report). An index that does not serve metadata apart
makes pip fetch the whole wheel for that, so pip is watched and stopped before it fetches one as large as a CUDA
build. Without a GPU only a CPU build is installed; else the ways out are named. ``TORCH_INDEX_URL`` names an
index to take torch from; then that index's build is taken as it is.

Last, ``constraints.txt`` is written into the environment, with the torch that is there: a torch of the learner's
own choice is not replaced by the pinned one.
"""

from __future__ import annotations

import json
import os
import platform
import re
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

CONSTRAINTS = Path(__file__).resolve().parent.parent / "constraints.txt"
#: A CPU build's wheel has about 190 MB, a CUDA build's more than 500 MB.
LARGEST_CPU_WHEEL_MB = 300

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


def constraints_with(text: str, version: str) -> str:
    """A constraints file's text, torch's pin replaced by the version that is installed."""
    return re.sub(r"(?m)^torch\s*==.*$", lambda _: f"torch=={version}", text)


def has_gpu() -> bool:
    """Whether an NVIDIA GPU answers."""
    smi = shutil.which("nvidia-smi")
    return smi is not None and subprocess.run([smi, "-L"], capture_output=True).returncode == 0


def is_cpu_build(report: dict) -> bool:
    """Whether what pip's report would install is torch without CUDA: no NVIDIA or Triton package with it."""
    torch = next(item for item in report["install"] if item["metadata"]["name"].lower() == "torch")
    if "+cu" in torch["metadata"]["version"]:
        return False
    return not any(
        re.match(r"(nvidia|cuda|triton)", need) and applies_here(need)
        for need in torch["metadata"].get("requires_dist", [])
    )


def applies_here(requirement: str) -> bool:
    """Whether a requirement's marker holds here; torch binds its CUDA needs to a system and a processor."""
    marker = requirement.partition(";")[2]
    if "extra ==" in marker:
        return False
    here = {
        "platform_system": platform.system(),
        "sys_platform": sys.platform,
        "platform_machine": platform.machine(),
    }
    named = re.findall(r"(platform_system|sys_platform|platform_machine)\s*==\s*['\"]([^'\"]+)['\"]", marker)
    # Several values of one name are alternatives ("x86_64" or "aarch64").
    return all(here[name] in [value for other, value in named if other == name] for name, _ in named)


def is_too_large(line: str) -> bool:
    """Whether a line of pip's output says that a wheel larger than any CPU build will now be downloaded."""
    said = re.search(r"Downloading \S+\.whl \(([\d.]+) (MB|GB)\)", line)
    return said is not None and float(said[1]) * (1000 if said[2] == "GB" else 1) > LARGEST_CPU_WHEEL_MB


def ask(pip: list[str], wanted: str) -> tuple[dict | None, str]:
    """What pip would take for ``wanted``: its report, and an empty text.

    The report is None if pip was stopped before a download as large as a CUDA build; it is None with pip's output
    as the text if pip failed.
    """
    with tempfile.TemporaryDirectory() as folder:
        report = Path(folder) / "report.json"
        command = [*pip, "--dry-run", "--no-deps", "--report", str(report), wanted]
        # A pip that is stopped leaves its temporary files: they belong into the folder that goes away.
        environment = {**os.environ, "TMPDIR": folder}
        with subprocess.Popen(
            command, env=environment, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
        ) as process:
            said = []
            for line in process.stdout:
                said.append(line)
                if is_too_large(line):
                    process.terminate()
                    return None, ""
        return (None, "".join(said)) if process.returncode else (json.loads(report.read_text()), "")


def installed() -> str | None:
    """The version of the torch that is here; asked of a new process, which sees what pip has just done."""
    script = "import importlib.metadata as m; print(m.version('torch'))"
    asked = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True)
    return asked.stdout.strip() if asked.returncode == 0 else None


def install(wanted: str) -> int:
    """Install ``wanted``; returns an exit status."""
    pip = [sys.executable, "-m", "pip", "install", "--disable-pip-version-check"]
    quiet = [*pip, "--quiet"]
    index = os.environ.get("TORCH_INDEX_URL")
    if index:
        print(f"installing {wanted} from TORCH_INDEX_URL", flush=True)
        # Its own dependencies come from the usual index: the build's index need not hold them.
        without = subprocess.run([*quiet, "--no-deps", "--index-url", index, wanted]).returncode
        return without or subprocess.run([*quiet, "-c", str(CONSTRAINTS), wanted]).returncode
    if not has_gpu():
        print(f"no NVIDIA GPU here: asking pip whether its {wanted} is a CPU build", flush=True)
        report, failure = ask(pip, wanted)
        if failure:
            print(failure, file=sys.stderr)
            return 1
        if report is None or not is_cpu_build(report):
            print(HELP, file=sys.stderr)
            return 1
    print(f"installing {wanted}", flush=True)
    return subprocess.run([*quiet, "-c", str(CONSTRAINTS), wanted]).returncode


def main() -> int:
    """Install torch if it is not there, and note its version. Returns an exit status."""
    pins = CONSTRAINTS.read_text()
    version = installed()
    if version:
        print(f"torch {version} is there already", flush=True)
    else:
        status = install(pinned(pins))
        if status:
            return status
        version = installed()
    (Path(sys.prefix) / "constraints.txt").write_text(constraints_with(pins, version))
    return 0


if __name__ == "__main__":
    sys.exit(main())
