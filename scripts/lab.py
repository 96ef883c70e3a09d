"""Open JupyterLab on the learner's own copies of the notebooks.

The copies lie in ``work/``; a file that is there is never overwritten, so neither ``make build`` nor a pull
can cost a learner anything.
"""

from __future__ import annotations

import os
import shutil
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
FIRST = "work/00_start_here/00_start_here.ipynb"


def copy_new(source: Path, target: Path) -> list[Path]:
    """Copy the files below ``source`` that ``target`` does not have; return what was copied."""
    copied = []
    for file in sorted(source.rglob("*.ipynb")):
        if ".ipynb_checkpoints" in file.parts:
            continue
        copy = target / file.relative_to(source)
        if not copy.exists():
            copy.parent.mkdir(parents=True, exist_ok=True)
            shutil.copyfile(file, copy)
            copied.append(copy)
    return copied


def arguments() -> list[str]:
    """JupyterLab's arguments for this machine: root in a container, no display, a port that was asked for."""
    # LabApp's address: JupyterLab sets its own over ServerApp's, also in what it prints.
    chosen = [f"--ServerApp.root_dir={ROOT}", f"--LabApp.default_url=/lab/tree/{FIRST}"]
    if hasattr(os, "geteuid") and os.geteuid() == 0:
        chosen.append("--allow-root")
    if sys.platform.startswith("linux") and not (os.environ.get("DISPLAY") or os.environ.get("WAYLAND_DISPLAY")):
        chosen.append("--no-browser")
    if os.environ.get("PORT"):
        chosen.append(f"--port={os.environ['PORT']}")
    return chosen


def main() -> None:
    """Copy what is new, and become JupyterLab."""
    new = copy_new(ROOT / "notebooks", ROOT / "work")
    print(f"{len(new)} new notebooks were copied to work/; your own files there stay as they are")
    bin_folder = str(Path(sys.executable).parent)
    # nbgrader calls alembic by its bare name, so the environment's programs must be on the path.
    os.environ["PATH"] = bin_folder + os.pathsep + os.environ.get("PATH", "")
    print("JupyterLab opens on lesson 00; its address is printed below. Ctrl-C, twice, ends it.", flush=True)
    os.chdir(ROOT)
    os.execv(sys.executable, [sys.executable, "-m", "jupyterlab", *arguments()])


if __name__ == "__main__":
    main()
