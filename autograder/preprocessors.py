"""nbgrader's step of execution, with the judge's verdicts in place of what the notebook claims."""

from __future__ import annotations

import os
import secrets
from pathlib import Path
from typing import Any

from nbclient.exceptions import CellTimeoutError, DeadKernelError
from nbformat.notebooknode import NotebookNode
from nbformat.v4 import new_output
from nbgrader.preprocessors import Execute
from nbgrader.utils import is_grade, is_solution
from traitlets import Integer

from autograder.exercise import Exercise, UnknownExercise, find
from autograder.seeds import SEED_VARIABLE, instructor_seed
from autograder.service import ADDRESS_VARIABLE, JudgeService
from autograder.verdict import CaseResult, JudgementResult, Verdict

_TEST = "test_"
_WIDGET = "application/vnd.jupyter.widget-view+json"


class JudgedExecute(Execute):
    """Runs a submission, and writes into each exercise's test cell what the judge outside has found.

    The kernel is given the address of the judge and nothing else. Points come from the judge's own record:
    without one, an exercise earns none, whatever the cell has printed or not printed. When the kernel dies
    or cannot be interrupted, what was judged before counts, and the rest of the notebook is not run.
    """

    max_output_chars = Integer(
        20_000, help="How much of what a cell prints, and of each picture or table it shows, is kept."
    ).tag(config=True)
    max_outputs = Integer(200, help="How many outputs of a cell are kept.").tag(config=True)

    def preprocess(self, nb: NotebookNode, resources: Any = None, km: Any = None) -> tuple[NotebookNode, Any]:
        """Run the notebook beside a judge of its own; nbgrader stands in the course folder meanwhile."""
        self._stopped = ""
        # A student could tag a test cell with the name that is known, and have it skipped.
        self.skip_cells_with_tag = secrets.token_hex(16)
        self.shutdown_kernel = "immediate"
        self.store_widget_state = False
        with JudgeService(seed=instructor_seed(Path.cwd())) as judge:
            self._judge_address = judge.address
            nb, resources = super().preprocess(nb, resources, km)
            verdicts = self._verdicts(judge)
        code = [cell for cell in nb.cells if cell.cell_type == "code"]
        for cell in code:
            self._trim(cell)
        errors = {cell.metadata.nbgrader.get("grade_id"): _error(cell) for cell in code if is_solution(cell)}
        for cell in code:
            if is_grade(cell) and not is_solution(cell):
                self._write_grade(cell, verdicts, errors)
        return nb, resources

    def start_new_kernel(self, **options: Any) -> None:
        """Start the kernel: it knows its judge, and not the seed."""
        environment = {**os.environ, ADDRESS_VARIABLE: self._judge_address}
        environment.pop(SEED_VARIABLE, None)
        super().start_new_kernel(**{**options, "env": environment})

    def preprocess_cell(self, cell: NotebookNode, resources: Any, index: int) -> tuple[NotebookNode, Any]:
        """Run one cell, unless it only measures or the kernel has gone."""
        if cell.cell_type != "code":
            return cell, resources
        cell.outputs, cell.execution_count = [], None
        only_measures = "measure" in cell.metadata.get("tags", []) and not (is_grade(cell) or is_solution(cell))
        if only_measures or self._stopped:
            return cell, resources
        try:
            return super().preprocess_cell(cell, resources, index)
        except DeadKernelError:
            self._stop(f"The notebook's process ended while it ran {_described(cell)}.")
        except CellTimeoutError:
            self._stop(f"Nothing could stop {_described(cell)} when its {self.timeout} seconds were over.")
        return cell, resources

    def output(self, outs: list, msg: dict, display_id: str, cell_index: int) -> NotebookNode | None:
        """Take an output of a cell, until there are too many of them."""
        if len(outs) >= self.max_outputs:
            return None
        return super().output(outs, msg, display_id, cell_index)

    def _stop(self, reason: str) -> None:
        self.log.warning("%s What was judged before counts; the rest is not run.", reason)
        self._stopped = f"{reason} What comes after it in the notebook could not be run."

    def _verdicts(self, judge: JudgeService) -> dict[str, Verdict]:
        try:
            return judge.verdicts()
        except OSError as error:
            self.log.error("The judge has gone (%s): this submission earns nothing; grade it again.", error)
            self._stopped = self._stopped or "The judge ended before its verdict; ask for this to be graded again."
            return {}

    def _trim(self, cell: NotebookNode) -> None:
        """Keep outputs to a size that a feedback page can carry; stderr is shown as text and decides nothing."""
        limit = self.max_output_chars
        # A widget without its state, which is not kept, is a line of noise.
        cell.outputs = [output for output in cell.outputs if _WIDGET not in output.get("data", {})]
        for output in cell.outputs:
            if output.output_type == "stream":
                output.text = _shortened(output.text, limit)
            elif output.output_type == "error":
                output.evalue = _shortened(output.evalue, limit)
                output.traceback = [_shortened(line, limit) for line in output.traceback]
            else:
                too_large = [kind for kind, data in output.data.items() if len(str(data)) > 20 * limit]
                for kind in too_large:
                    output.data[kind] = f"{len(str(output.data[kind]))} characters of {kind} were left out"

    def _write_grade(self, cell: NotebookNode, verdicts: dict[str, Verdict], errors: dict[str, str]) -> None:
        """The outputs of a graded cell, from which nbgrader takes its points."""
        exercise = _exercise_of(cell)
        if exercise is None:
            if cell.execution_count is None:  # an instructor's own cell: no output would mean full points
                cell.outputs = [new_output("error", ename="NotRun", evalue=self._stopped, traceback=[self._stopped])]
            return
        verdict = verdicts.get(exercise.id) or _nothing(exercise, self._reason(cell, errors.get(exercise.id, "")))
        points = _points(verdict, float(cell.metadata.nbgrader["points"]))
        printed = "".join(output.text for output in cell.outputs if output.output_type == "stream")
        cell.execution_count = cell.execution_count or 0
        cell.outputs = [new_output("display_data", {"text/html": verdict.html(), "text/plain": verdict.text()})]
        if printed:
            cell.outputs.append(new_output("stream", name="stdout", text=_shortened(printed, self.max_output_chars)))
        result = {"text/plain": repr(points)}
        cell.outputs.append(new_output("execute_result", result, execution_count=cell.execution_count))

    def _reason(self, cell: NotebookNode, error_of_answer: str) -> str:
        """Why the judge was handed nothing for a test cell."""
        if cell.execution_count is None:
            return f"No answer reached the judge. {self._stopped}".strip()
        if error_of_answer:
            return f"No answer reached the judge: the cell of the answer raised {error_of_answer}"
        error = _error(cell)
        if error:
            return f"No answer reached the judge: running this cell raised {error}"
        return "No answer reached the judge; what this cell printed, if anything, says more."


def _error(cell: NotebookNode) -> str:
    """The error that a cell ended with, in a line; empty if there is none."""
    for output in cell.outputs:
        if output.output_type == "error":
            return _shortened(f"{output.ename}: {output.evalue}".strip(": "), 300)
    return ""


def _exercise_of(cell: NotebookNode) -> Exercise | None:
    """The exercise whose test cell this is, if it is one of ours."""
    grade_id = cell.metadata.nbgrader.get("grade_id", "")
    if not grade_id.startswith(_TEST):
        return None
    try:
        return find(grade_id.removeprefix(_TEST))
    except UnknownExercise:
        return None


def _points(verdict: Verdict, worth: float) -> float:
    """The points of a verdict in a cell that the gradebook says is worth ``worth``."""
    if verdict.max_points == worth:
        return float(verdict.points)
    return min(worth, round(worth * verdict.points / verdict.max_points, 4))


def _nothing(exercise: Exercise, reason: str) -> Verdict:
    """The verdict on an answer that never came."""
    judgements = [JudgementResult(one.name, None, 0.0, one.points) for one in exercise.judgements]
    case = CaseResult("hand in", False, reason)
    return Verdict(exercise.id, False, 0.0, exercise.points, [case], judgements)


def _described(cell: NotebookNode) -> str:
    """A cell in words: its exercise, or how it begins."""
    grade_id = cell.metadata.get("nbgrader", {}).get("grade_id")
    if grade_id:
        return f"the cell `{grade_id}`"
    return f"the cell that begins with `{_shortened(cell.source.strip().splitlines()[0], 60)}`"


def _shortened(text: str, limit: int) -> str:
    if len(text) <= limit:
        return text
    return f"{text[:limit]}\n… {len(text) - limit} more characters were left out\n"
