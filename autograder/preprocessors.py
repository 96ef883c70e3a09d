"""nbgrader's preprocessor of ours: run the notebook with the judge outside, then write the judge's points.

It stands where nbgrader's own Execute stood. The kernel gets the address of a judge that this process
started before it; what the kernel prints into a test cell is shown and counts nothing.
"""

from __future__ import annotations

import os
import secrets
from html import escape
from pathlib import Path
from typing import Any

from nbclient.exceptions import CellTimeoutError, DeadKernelError
from nbformat import NotebookNode
from nbformat.v4 import new_output
from nbgrader.preprocessors import Execute

from autograder.service import ADDRESS_VARIABLE, JudgeService
from autograder.verdict import Verdict

SEED_FILE = ".autograder-seed"
SEED_VARIABLE = "AUTOGRADER_SEED"
#: What a student printed in a test cell is kept up to this many characters.
_MAX_TEXT = 20_000


class JudgedExecute(Execute):
    """Execute the notebook; exercises get the points that the judge outside the kernel gave them."""

    def preprocess(self, nb: NotebookNode, resources: Any, km: Any = None) -> tuple[NotebookNode, Any]:
        """Execute ``nb`` in a fresh kernel and rewrite the outputs of its test cells."""
        died = ""
        for cell in nb.cells:
            cell.get("metadata", {}).pop("execution", None)
            if cell.cell_type == "code":
                cell.outputs, cell.execution_count = [], None
        with JudgeService(seed=course_seed(Path.cwd())) as judge:
            before = os.environ.get(ADDRESS_VARIABLE)
            os.environ[ADDRESS_VARIABLE] = judge.address
            try:
                nb, resources = super().preprocess(nb, resources, km=km)
            except DeadKernelError:
                died = "The kernel died while an earlier cell ran, so this cell was never reached."
            except CellTimeoutError:
                died = "An earlier cell could neither finish nor be interrupted, so this cell was never reached."
            finally:
                if before is None:
                    os.environ.pop(ADDRESS_VARIABLE, None)
                else:
                    os.environ[ADDRESS_VARIABLE] = before
            verdicts = judge.verdicts()
        for cell in nb.cells:
            exercise_id = _tested_exercise(cell)
            if exercise_id:
                write_verdict(cell, verdicts.get(exercise_id), died)
        return nb, resources

    def preprocess_cell(self, cell: NotebookNode, resources: Any, index: int) -> tuple[NotebookNode, Any]:
        """Execute one cell. Measurements are left out: they show a learner his own machine, and cost time."""
        if "measure" in cell.metadata.get("tags", []) and "nbgrader" not in cell.metadata:
            return cell, resources
        return super().preprocess_cell(cell, resources, index)


def write_verdict(cell: NotebookNode, verdict: Verdict | None, died: str) -> None:
    """Replace a test cell's outputs by the judge's: no verdict is no points, with the reason."""
    printed = "".join(output.text for output in cell.outputs if output.output_type == "stream")
    errors = [output for output in cell.outputs if output.output_type == "error"]
    if verdict is None:
        reason = died or (f"{errors[0].ename}: {errors[0].evalue}" if errors else "No answer reached the judge.")
        html = f"<p><b>Not judged, 0 points.</b> {escape(reason[:2000])}</p>"
        shown = {"text/html": html, "text/plain": f"Not judged, 0 points. {reason[:2000]}"}
    else:
        shown = {"text/html": verdict.html(), "text/plain": verdict.text()}
    cell.outputs = [new_output("display_data", data=shown)]
    if printed.strip():
        cell.outputs.insert(0, new_output("stream", name="stdout", text=printed[:_MAX_TEXT]))
    points = verdict.points if verdict else 0.0
    # nbgrader reads partial credit from here; an error or anything on stderr would be zero for it.
    cell.outputs.append(new_output("execute_result", data={"text/plain": repr(float(points))}, execution_count=1))


def _tested_exercise(cell: NotebookNode) -> str | None:
    """The id of the exercise that a test cell tests; None for any other cell."""
    info = cell.metadata.get("nbgrader", {})
    tests = cell.cell_type == "code" and info.get("grade") and not info.get("solution")
    return info["grade_id"].removeprefix("test_") if tests and info["grade_id"].startswith("test_") else None


def course_seed(start: Path) -> int:
    """The seed of the hidden cases: ``AUTOGRADER_SEED``, else a secret file in the course's folder, made if missing."""
    named = os.environ.get(SEED_VARIABLE)
    if named:
        return int(named)
    root = next((folder for folder in (start, *start.parents) if (folder / "nbgrader_config.py").is_file()), start)
    path = root / SEED_FILE
    try:
        handle = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    except FileExistsError:
        return int(path.read_text())
    with os.fdopen(handle, "w") as file:
        file.write(str(secrets.randbits(63)))
    return int(path.read_text())
