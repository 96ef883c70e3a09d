"""Reads the lessons: py:percent files whose cells carry a mark in their title."""

from __future__ import annotations

import linecache
import re
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType
from typing import Any

ROOT = Path(__file__).resolve().parent.parent
MARKS = ("setup", "solution", "tests", "predict", "measure", "quiz", "words")
BEGIN_SOLUTION, END_SOLUTION = "### BEGIN SOLUTION", "### END SOLUTION"


class LessonError(ValueError):
    """A lesson file is not as it should be; the message says where and what."""


@dataclass(frozen=True)
class Cell:
    """One cell of a lesson: ``mark`` is one of MARKS or empty, ``arguments`` what follows it."""

    kind: str
    source: str
    mark: str = ""
    arguments: tuple[str, ...] = ()


def lessons(root: Path = ROOT) -> list[str]:
    """The names of the lessons, in order, such as "04_collectives"."""
    return sorted(path.stem for path in (root / "lessons").glob("[0-9][0-9]_*.py"))


def read(lesson: str, root: Path = ROOT) -> list[Cell]:
    """The cells of a lesson.

    Raises:
        LessonError: there is no such lesson, or a mark is unknown.
    """
    import jupytext

    path = root / "lessons" / f"{lesson}.py"
    if not path.is_file():
        raise LessonError(f"there is no lesson {lesson!r} in {root / 'lessons'}")
    notebook = jupytext.read(path, fmt="py:percent")
    return [_cell(lesson, cell) for cell in notebook.cells]


def _cell(lesson: str, cell: Any) -> Cell:
    mark, *arguments = cell.metadata.get("title", "").split()[:3] or [""]
    if mark and mark not in MARKS:
        raise LessonError(f"{lesson}: unknown cell mark {mark!r}; there are {', '.join(MARKS)}")
    wanted = {"solution": 1, "tests": 1, "words": 2}.get(mark, 0)
    if len(arguments) != wanted:
        raise LessonError(f"{lesson}: the mark {mark!r} takes {wanted} words after it, not {len(arguments)}")
    if mark == "words" and cell.cell_type == "code":
        return Cell("markdown", re.sub(r"^# ?", "", cell.source, flags=re.MULTILINE), mark, tuple(arguments))
    return Cell(cell.cell_type, cell.source, mark, tuple(arguments))


def reference(lesson: str, root: Path = ROOT) -> dict[str, Any]:
    """The reference solutions of a lesson by name: its solution cells, run one after the other, and nothing else.

    Functions made so travel to ranks by value, and their lines can be shown.
    """
    module = ModuleType(f"reference_{lesson}")
    for number, cell in enumerate(read(lesson, root)):
        if cell.mark == "solution":
            filename = f"<{lesson}, cell {number + 1}>"
            linecache.cache[filename] = (len(cell.source), None, cell.source.splitlines(keepends=True), filename)
            exec(compile(cell.source, filename, "exec"), module.__dict__)
    return {name: value for name, value in vars(module).items() if not name.startswith("__")}


def reference_source(lesson: str, exercise_id: str, root: Path = ROOT) -> str:
    """The source of one solution cell, reference included."""
    for cell in read(lesson, root):
        if cell.mark == "solution" and cell.arguments == (exercise_id,):
            return cell.source
    raise LessonError(f"{lesson} has no solution cell {exercise_id!r}")
