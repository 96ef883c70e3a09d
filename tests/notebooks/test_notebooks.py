"""Solved notebooks pass as they are; students' notebooks fail exercise by exercise, readably, and never hang."""

import os
import shutil
import subprocess
import sys

import nbformat
import pytest

from autograder.build import built_path
from autograder.lessons import ROOT, lessons

#: What an exercise that is still open may raise: the check itself, or a cell that uses the answer.
READABLE = {"CheckFailed", "NotImplementedError", "RankError", "NameError"}


@pytest.mark.parametrize("lesson", lessons())
def test_a_solved_notebook_passes(lesson, tmp_path):
    copy = tmp_path / lesson / f"{lesson}.ipynb"
    copy.parent.mkdir()
    shutil.copyfile(ROOT / built_path("solutions", lesson), copy)
    done = subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "--nbmake", "--nbmake-timeout=60", "-p", "no:cacheprovider", str(copy)],
        cwd=tmp_path,
        env={name: value for name, value in os.environ.items() if not name.startswith("PYTEST_")},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )
    assert done.returncode == 0, done.stdout[-6000:]


@pytest.mark.parametrize("lesson", lessons())
def test_a_students_notebook_fails_exercise_by_exercise(lesson, tmp_path):
    from nbclient import NotebookClient

    notebook = nbformat.read(ROOT / built_path("notebooks", lesson), as_version=4)
    client = NotebookClient(
        notebook, timeout=60, allow_errors=True, kernel_name="python3", resources={"metadata": {"path": str(tmp_path)}}
    )
    client.execute()
    tests = 0
    for cell in notebook.cells:
        errors = [output for output in cell.get("outputs", []) if output.output_type == "error"]
        assert {error.ename for error in errors} <= READABLE, (cell.source, errors)
        if not cell.metadata.get("nbgrader", {}).get("grade") or cell.cell_type != "code":
            continue
        tests += 1
        name = cell.metadata.nbgrader.grade_id.removeprefix("test_")
        assert len(errors) == 1, f"{name} passes unsolved"
        if errors[0].ename == "CheckFailed":
            assert errors[0].evalue.startswith(f"{name}: not yet, 0 of ")
            assert len(errors[0].traceback) == 1, "the check shows frames of its own"
        else:
            assert errors[0].ename == "NameError"
            assert name.startswith("quiz_"), errors[0]
    assert tests
