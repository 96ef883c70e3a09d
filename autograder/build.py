"""Builds the notebooks: lessons → ``solutions/`` → ``notebooks/``, the same bytes each time."""

from __future__ import annotations

import argparse
import hashlib
import logging
import re
import sys
import tempfile
from collections import Counter
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from autograder.exercise import find
from autograder.lesson_rules import checked
from autograder.lessons import ROOT, Cell, LessonError, lessons

#: The rooms that are built and never edited.
ROOMS = ("solutions", "notebooks")
#: nbgrader's settings, which the instructor's commands use too.
CONFIG = Path(__file__).with_name("nbgrader_config.py")

_SETUP = """\
# Run this cell first. On Colab, Kaggle or RunPod it also fetches the course, in seconds.
try:
    import rankzero
except ModuleNotFoundError:
    %pip install --quiet "rankzero @ git+https://github.com/{repository}@{branch}"
    import rankzero

from autograder import check, progress, quiz

%load_ext rankzero"""

_HIDDEN = """\
### BEGIN HIDDEN TESTS
from autograder import grade
grade({arguments})
### END HIDDEN TESTS"""

_BADGES = """\
[![Open in Colab](https://colab.research.google.com/assets/colab-badge.svg)]\
(https://colab.research.google.com/github/{repository}/blob/{branch}/{path})

On your machine: `make lab` · on [Kaggle](https://www.kaggle.com/kernels/welcome?src=\
https://github.com/{repository}/blob/{branch}/{path}), switch *Internet* on in the side bar · on RunPod, in the \
terminal of a PyTorch pod: `git clone https://github.com/{repository}`, then open `{path}`"""


@dataclass(frozen=True)
class Course:
    """Where the course lives on GitHub: a slug such as "owner/name", and the branch that links lead to."""

    repository: str
    branch: str

    @classmethod
    def of(cls, root: Path) -> Course:
        """The course as ``lessons/course.toml`` describes it."""
        try:
            import tomllib
        except ModuleNotFoundError:  # Python 3.10; JupyterLab brings this one there
            import tomli as tomllib
        settings = tomllib.loads((root / "lessons" / "course.toml").read_text(encoding="utf-8"))
        return cls(settings["repository"], settings["branch"])


def built_path(room: str, lesson: str) -> str:
    """Where a lesson's notebook lies, from the root: nbgrader wants a folder for each assignment."""
    return f"{room}/{lesson}/{lesson}.ipynb"


def build(root: Path = ROOT) -> dict[str, bytes]:
    """Every file of ``solutions/`` and ``notebooks/``, by its path from the root; nothing is written there.

    Raises:
        LessonError: a lesson breaks a rule; one line for each thing to mend.
    """
    course = Course.of(root)
    names = lessons(root)
    solved: dict[str, str] = {}
    problems = []
    for lesson in names:
        try:
            solved[built_path("solutions", lesson)] = solution_notebook(lesson, course, root)
        except LessonError as error:
            problems.append(str(error))
    if problems:
        raise LessonError("\n".join(problems))
    with tempfile.TemporaryDirectory(prefix="rankzero-build-") as folder:
        place = Path(folder).resolve()
        write({name: text.encode() for name, text in solved.items()}, place)
        for lesson in names:
            _generate_assignment(lesson, place)
        return {
            built_path(room, lesson): (place / built_path(room, lesson)).read_bytes()
            for room in ROOMS
            for lesson in names
        }


def solution_notebook(lesson: str, course: Course, root: Path = ROOT) -> str:
    """nbgrader's source notebook of a lesson, as the text of an .ipynb file."""
    import nbformat

    path = built_path("notebooks", lesson)
    notebook = nbformat.v4.new_notebook(
        cells=[_notebook_cell(cell, course, path) for cell in checked(lesson, root)],
        metadata={
            "kernelspec": {"display_name": "Python 3", "language": "python", "name": "python3"},
            "language_info": {"name": "python"},
        },
    )
    # Fixed, so that a newer nbformat does not change every file.
    notebook.nbformat, notebook.nbformat_minor = 4, 5
    used: Counter[str] = Counter()
    for cell in notebook.cells:
        name = cell.metadata.get("nbgrader", {}).get("grade_id") or _digest(cell)
        used[name] += 1
        cell.id = name if used[name] == 1 else f"{name}-{used[name]}"
    nbformat.validate(notebook)
    return nbformat.writes(notebook) + "\n"


def _digest(cell: Any) -> str:
    return hashlib.sha256(f"{cell.cell_type}\n{cell.source}".encode()).hexdigest()[:12]


def _notebook_cell(cell: Cell, course: Course, path: str) -> Any:
    """A lesson's cell as a notebook has it, with what nbgrader needs to know of it."""
    from nbformat.v4 import new_code_cell, new_markdown_cell

    where = {"repository": course.repository, "branch": course.branch, "path": path}
    metadata: dict[str, Any] = {}
    source = cell.source
    if cell.kind == "prose":
        source = source.replace("{{badges}}", _BADGES.format(**where))
    elif cell.kind == "setup":
        source = _SETUP.format(**where)
        metadata["nbgrader"] = _nbgrader("setup", locked=True)
    elif cell.kind == "solution":
        metadata["nbgrader"] = _nbgrader(cell.id, solution=True)
    elif cell.kind == "tests":
        exercise = find(cell.id)
        arguments = ", ".join((f'"{cell.id}"', *exercise.names))
        source = f"{source.rstrip()}\n{_HIDDEN.format(arguments=arguments)}"
        metadata["nbgrader"] = _nbgrader(f"test_{cell.id}", grade=True, locked=True, points=exercise.points)
    elif cell.kind == "words":
        metadata["nbgrader"] = _nbgrader(cell.id, grade=True, solution=True, points=cell.points)
    if cell.kind in ("setup", "predict", "measure"):
        metadata["tags"] = [cell.kind]
    make = new_markdown_cell if cell.is_text else new_code_cell
    return make(source, metadata=metadata)


def _nbgrader(
    grade_id: str, grade: bool = False, solution: bool = False, locked: bool = False, points: float | None = None
) -> dict[str, Any]:
    """A cell's nbgrader metadata, schema 3."""
    metadata: dict[str, Any] = {
        "grade": grade,
        "grade_id": grade_id,
        "locked": locked,
        "schema_version": 3,
        "solution": solution,
        "task": False,
    }
    if points is not None:
        metadata["points"] = int(points) if float(points).is_integer() else float(points)
    return metadata


def _generate_assignment(lesson: str, place: Path) -> None:
    """nbgrader's own step from source to release, without a gradebook."""
    from nbgrader.converters import GenerateAssignment
    from nbgrader.coursedir import CourseDirectory
    from traitlets.config.loader import Config, PyFileConfigLoader

    config = Config(PyFileConfigLoader(CONFIG.name, path=str(CONFIG.parent)).load_config())
    config.CourseDirectory.root = str(place)
    config.CourseDirectory.assignment_id = lesson
    config.SaveCells.enabled = False
    config.GenerateAssignment.no_database = True
    course = CourseDirectory(config=config)
    converter = GenerateAssignment(coursedir=course, config=config)
    converter.log = logging.getLogger("autograder.build")
    converter.start()


def differences(files: dict[str, bytes], root: Path = ROOT) -> list[str]:
    """The paths at which ``root`` and what was built differ."""
    changed = {name for name, data in files.items() if not _holds(root / name, data)}
    return sorted(changed | set(_left_over(files, root)))


def write(files: dict[str, bytes], root: Path = ROOT) -> None:
    """Write what was built, and remove what a lesson that is gone has left behind."""
    for name, data in files.items():
        path = root / name
        if not _holds(path, data):
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(data)
    for name in _left_over(files, root):
        (root / name).unlink()
    for room in ROOMS:
        for folder in sorted((root / room).glob("**/"), reverse=True):
            if folder != root / room and not any(folder.iterdir()):
                folder.rmdir()


def _holds(path: Path, data: bytes) -> bool:
    return path.is_file() and path.read_bytes() == data


def _left_over(files: dict[str, bytes], root: Path) -> list[str]:
    """Files in the built rooms that were not built; what is hidden (a front end's, a learner's) stays."""
    found = [path.relative_to(root) for room in ROOMS for path in (root / room).rglob("*") if path.is_file()]
    return [
        path.as_posix()
        for path in found
        if path.as_posix() not in files and not any(re.match(r"\.|__pycache__$", part) for part in path.parts)
    ]


def main(arguments: list[str] | None = None, root: Path = ROOT) -> int:
    """Entry of ``python -m autograder.build``; returns the exit status."""
    parser = argparse.ArgumentParser(prog="python -m autograder.build", description=__doc__)
    parser.add_argument("--check", action="store_true", help="write nothing; exit 1 if a notebook is out of date")
    options = parser.parse_args(arguments)
    try:
        files = build(root)
    except LessonError as error:
        print(error, file=sys.stderr)
        return 1
    changed = differences(files, root)
    if options.check:
        for name in changed:
            print(f"{name} is not what `make build` makes of the lessons")
        return 1 if changed else 0
    write(files, root)
    for name in changed:
        print(f"{'wrote' if name in files else 'removed'} {name}")
    print(f"{len(files)} notebooks are up to date")
    return 0


if __name__ == "__main__":
    sys.exit(main())
