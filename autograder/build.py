"""``make build``: lessons → solutions → notebooks, the same to the byte each time.

The lessons' cell marks become nbgrader's metadata in ``solutions/``; nbgrader itself then makes
``notebooks/`` from that, in a temporary course folder, so that no gradebook is left in the repository.
"""

from __future__ import annotations

import argparse
import contextlib
import hashlib
import logging
import re
import shutil
import sys
import tempfile
from collections import Counter
from pathlib import Path

import nbformat
from nbformat.v4 import new_code_cell, new_markdown_cell, new_notebook

from autograder.exercise import Exercise, UnknownExercise, find
from autograder.lessons import BEGIN_SOLUTION, END_SOLUTION, ROOT, Cell, LessonError, lessons, read

SETUP = """\
try:
    import rankzero
except ModuleNotFoundError:  # Colab, Kaggle, RunPod: a few seconds, and torch stays as it is
    %pip install --quiet "rankzero @ git+https://github.com/{repository}"
    import rankzero
from autograder import check, progress, quiz

%load_ext rankzero"""

BADGES = """\
[![Open in Colab](https://colab.research.google.com/assets/colab-badge.svg)]\
(https://colab.research.google.com/github/{repository}/blob/{branch}/notebooks/{lesson}/{lesson}.ipynb)
 On Kaggle: File → Import notebook → GitHub → `{repository}`. On RunPod or any machine of yours:
`git clone https://github.com/{repository}`, then `make lab`."""

_METADATA = {
    "kernelspec": {"display_name": "Python 3", "language": "python", "name": "python3"},
    "language_info": {"name": "python"},
}


def build(root: Path, target: Path) -> None:
    """Build ``solutions/`` and ``notebooks/`` of the lessons in ``root`` below ``target``, which must be empty.

    Raises:
        LessonError: a lesson is not as it should be.
    """
    names = lessons(root)
    for name in names:
        notebook = solution_notebook(name, root)
        path = target / "solutions" / name / f"{name}.ipynb"
        path.parent.mkdir(parents=True)
        _write(notebook, path)
    _release(names, target)
    for name in names:
        path = target / "notebooks" / name / f"{name}.ipynb"
        notebook = nbformat.read(path, as_version=4)
        notebook.metadata = nbformat.from_dict(_METADATA)
        _write(notebook, path)


def solution_notebook(lesson: str, root: Path) -> nbformat.NotebookNode:
    """nbgrader's source notebook of a lesson."""
    settings = _settings(root)
    cells = read(lesson, root)
    tested = {cell.arguments[0] for cell in cells if cell.mark == "tests"}
    built = []
    for cell in cells:
        if cell.mark == "solution" and cell.arguments[0] not in tested:
            raise LessonError(f"{lesson}: the solution cell {cell.arguments[0]!r} has no tests cell")
        built.append(_build_cell(lesson, cell, settings))
    _give_ids(built)
    notebook = new_notebook(cells=built, metadata=_METADATA)
    notebook.nbformat_minor = 5
    return notebook


def _build_cell(lesson: str, cell: Cell, settings: dict[str, str]) -> nbformat.NotebookNode:
    if cell.mark == "setup":
        return _code(SETUP.format(**settings), tags=["setup"])
    if cell.mark in ("predict", "measure", "quiz"):
        return _code(cell.source, tags=[cell.mark])
    if cell.mark == "solution":
        return _solution_cell(lesson, cell)
    if cell.mark == "tests":
        return _tests_cell(lesson, cell)
    if cell.mark == "words":
        _refuse_unbalanced(lesson, cell)
        grade_id, points = cell.arguments
        made = new_markdown_cell(cell.source)
        made.metadata["nbgrader"] = _nbgrader(grade_id, grade=True, solution=True, points=float(points))
        return made
    if cell.kind == "markdown":
        return new_markdown_cell(cell.source.replace("{{badges}}", BADGES.format(lesson=lesson, **settings)))
    return _code(cell.source)


def _solution_cell(lesson: str, cell: Cell) -> nbformat.NotebookNode:
    (exercise_id,) = cell.arguments
    _exercise(lesson, exercise_id)
    if cell.source.splitlines()[:1] != [f"# exercise: {exercise_id}"]:
        raise LessonError(f"{lesson}: the first line of the solution cell {exercise_id!r} must be `# exercise: {exercise_id}`")
    _refuse_unbalanced(lesson, cell)
    made = _code(cell.source)
    made.metadata["nbgrader"] = _nbgrader(exercise_id, solution=True)
    return made


def _tests_cell(lesson: str, cell: Cell) -> nbformat.NotebookNode:
    (exercise_id,) = cell.arguments
    exercise = _exercise(lesson, exercise_id)
    call = f'("{exercise_id}", {", ".join(exercise.names)})'
    if cell.source.strip() != f"check{call}":
        raise LessonError(f"{lesson}: the tests cell of {exercise_id!r} must read `check{call}`")
    hidden = f"### BEGIN HIDDEN TESTS\nfrom autograder import grade\n\ngrade{call}\n### END HIDDEN TESTS"
    made = _code(f"check{call}\n{hidden}")
    made.metadata["nbgrader"] = _nbgrader(f"test_{exercise_id}", grade=True, locked=True, points=exercise.points)
    return made


def _exercise(lesson: str, exercise_id: str) -> Exercise:
    try:
        exercise = find(exercise_id)
    except UnknownExercise as error:
        raise LessonError(f"{lesson}: {error}") from None
    if exercise.lesson != lesson:
        raise LessonError(f"{lesson}: the exercise {exercise_id!r} belongs to {exercise.lesson}")
    return exercise


def _refuse_unbalanced(lesson: str, cell: Cell) -> None:
    marks = re.findall(f"{BEGIN_SOLUTION}|{END_SOLUTION}", cell.source)
    if not marks or marks != [BEGIN_SOLUTION, END_SOLUTION] * (len(marks) // 2):
        raise LessonError(
            f"{lesson}: the cell {cell.arguments[0]!r} needs `{BEGIN_SOLUTION}` and `{END_SOLUTION}` in pairs around "
            "what students must not see"
        )


def _code(source: str, tags: list[str] | None = None) -> nbformat.NotebookNode:
    made = new_code_cell(source)
    if tags:
        made.metadata["tags"] = tags
    return made


def _nbgrader(grade_id: str, grade=False, solution=False, locked=False, points: float | None = None) -> dict:
    made = {
        "grade": grade,
        "grade_id": grade_id,
        "locked": locked,
        "schema_version": 3,
        "solution": solution,
        "task": False,
    }
    return made if points is None else {**made, "points": points}


def _give_ids(cells: list[nbformat.NotebookNode]) -> None:
    """Ids from the grade id, else from the content, so that a rebuilt notebook differs only where it changed."""
    seen: Counter = Counter()
    for cell in cells:
        named = cell.metadata.get("nbgrader", {}).get("grade_id")
        made = named.replace("_", "-") if named else hashlib.sha256(cell.source.encode()).hexdigest()[:12]
        seen[made] += 1
        cell.id = made if seen[made] == 1 else f"{made}-{seen[made]}"


def _release(names: list[str], target: Path) -> None:
    """Have nbgrader's own generate_assignment make the notebooks."""
    from nbgrader.apps import NbGraderAPI
    from traitlets.config import Config

    from autograder.nbgrader_config import settings

    with tempfile.TemporaryDirectory() as folder:
        config = Config(settings())
        config.CourseDirectory.root = str(target)
        config.CourseDirectory.db_url = f"sqlite:///{folder}/gradebook.db"
        api = NbGraderAPI(config=config)
        api.log_level = logging.WARNING
        for name in names:
            result = api.generate_assignment(name)
            if not result["success"]:
                raise LessonError(f"nbgrader could not make the notebook of {name}:\n{result.get('error') or result['log']}")


def _settings(root: Path) -> dict[str, str]:
    text = (root / "lessons" / "course.toml").read_text(encoding="utf-8")
    return dict(re.findall(r'^(\w+)\s*=\s*"([^"]*)"', text, flags=re.MULTILINE))


def _write(notebook: nbformat.NotebookNode, path: Path) -> None:
    nbformat.validate(notebook)
    path.write_text(nbformat.writes(notebook, version=4).rstrip("\n") + "\n", encoding="utf-8")


def differing(built: Path, root: Path) -> list[str]:
    """The files below ``solutions/`` and ``notebooks/`` that differ between two trees, or are in one only."""

    def files(base: Path) -> dict[str, bytes]:
        found = [path for room in ("solutions", "notebooks") for path in (base / room).rglob("*") if path.is_file()]
        return {path.relative_to(base).as_posix(): path.read_bytes() for path in found}

    ours, theirs = files(built), files(root)
    return sorted(name for name in {*ours, *theirs} if ours.get(name) != theirs.get(name))


def main(arguments: list[str] | None = None) -> int:
    """Build in a temporary folder, then replace what differs. ``--check`` only says what differs."""
    parser = argparse.ArgumentParser(prog="make build", description=__doc__.splitlines()[0])
    parser.add_argument("--check", action="store_true", help="change nothing; exit 1 if something differs")
    check = parser.parse_args(arguments).check
    with tempfile.TemporaryDirectory() as folder:
        built = Path(folder)
        try:
            build(ROOT, built)
        except LessonError as error:
            print(error, file=sys.stderr)
            return 1
        names = differing(built, ROOT)
        for name in names:
            print(f"{'differs' if check else 'written'}: {name}")
            if not check:
                _replace(built / name, ROOT / name)
    return 1 if check and names else 0


def _replace(source: Path, target: Path) -> None:
    if source.exists():
        target.parent.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(source, target)
    else:
        target.unlink()
        with contextlib.suppress(OSError):
            target.parent.rmdir()


if __name__ == "__main__":
    sys.exit(main())
