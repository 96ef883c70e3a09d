"""A class in a folder of its own: hand in answers, have stock nbgrader grade them, read the scores."""

from __future__ import annotations

import copy
import os
import shutil
import subprocess
import sys
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from autograder.build import CONFIG, built_path
from autograder.lessons import ROOT


def fill(notebook: Any, answers: Mapping[str, str]) -> Any:
    """A copy of a notebook in which the solution cells hold the given sources.

    Args:
        answers: cell text by exercise id; for a question in words, by its id.

    Raises:
        KeyError: the notebook has no solution cell of that id.
    """
    filled = copy.deepcopy(notebook)
    cells = {}
    for cell in filled.cells:
        settings = cell.metadata.get("nbgrader", {})
        if settings.get("solution"):
            cells[settings["grade_id"]] = cell
    for name, source in answers.items():
        if name not in cells:
            raise KeyError(f"the notebook has no solution cell {name!r}; it has {', '.join(cells)}")
        cells[name].source = source
    return filled


class Classroom:
    """A course folder with the built notebooks of some lessons, where students hand in and nbgrader grades.

    Args:
        folder: where it is to be; made if need be.
        lessons: the assignments.
        root: the repository whose built notebooks are used.
    """

    def __init__(self, folder: Path, lessons: list[str], root: Path = ROOT):
        self.folder = folder
        self.lessons = lessons
        folder.mkdir(parents=True, exist_ok=True)
        (folder / "nbgrader_config.py").write_text(f"load_subconfig({str(CONFIG)!r})\n", encoding="utf-8")
        for lesson in lessons:
            target = folder / built_path("solutions", lesson)
            target.parent.mkdir(parents=True, exist_ok=True)
            shutil.copyfile(root / built_path("solutions", lesson), target)
            self.nbgrader("generate_assignment", lesson)

    def nbgrader(self, *arguments: str, on_line: Callable[[str], None] | None = None) -> str:
        """Run an nbgrader command in the folder, as an instructor types it; return what it printed.

        Args:
            on_line: called with each line as it comes.

        Raises:
            RuntimeError: it failed; the text is the end of what it printed.
        """
        # nbgrader calls alembic by its bare name, so the environment's programs must be on the path.
        path = os.pathsep.join((str(Path(sys.executable).parent), os.environ.get("PATH", "")))
        printed = []
        with subprocess.Popen(
            [sys.executable, "-m", "nbgrader", *arguments],
            cwd=self.folder,
            env={**os.environ, "PATH": path},
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            errors="replace",
        ) as process:
            for line in process.stdout:
                printed.append(line)
                if on_line is not None:
                    on_line(line)
        if process.returncode:
            raise RuntimeError(f"`nbgrader {' '.join(arguments)}` failed:\n{''.join(printed)[-4000:]}")
        return "".join(printed)

    def released(self, lesson: str) -> Any:
        """The notebook that students get."""
        import nbformat

        return nbformat.read(self.folder / built_path("notebooks", lesson), as_version=4)

    def hand_in(self, student: str, lesson: str, notebook: Any) -> None:
        """Put a student's notebook where nbgrader looks for it."""
        import nbformat

        folder = self.folder / "submitted" / student / lesson
        folder.mkdir(parents=True, exist_ok=True)
        nbformat.write(notebook, folder / f"{lesson}.ipynb")

    def scores(self, lesson: str) -> dict[str, dict[str, float | None]]:
        """Points by student and graded cell; None where a person has to grade."""
        from nbgrader.api import Gradebook

        with Gradebook(f"sqlite:///{self.folder / 'gradebook.db'}") as gradebook:
            return {
                submission.student.id: {
                    grade.name: None if grade.needs_manual_grade else grade.score
                    for notebook in submission.notebooks
                    for grade in notebook.grades
                }
                for submission in gradebook.assignment_submissions(lesson)
            }

    def feedback(self, student: str, lesson: str) -> Path:
        """Where a student's feedback page lies."""
        return self.folder / "feedback" / student / lesson / f"{lesson}.html"
