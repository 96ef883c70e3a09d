"""What students get holds no answer, no hidden test, no output and no file but the notebook."""

import json
import re

import pytest

from autograder.build import built_path
from autograder.lesson_rules import released
from autograder.lessons import BEGIN, END, ROOT, lessons, read

LESSONS = lessons()
#: Larger notebooks are slow to open on Colab, and hard to read anywhere.
MOST_BYTES = 60 * 1024


def lines_of(text):
    return [line.strip() for line in text.splitlines() if line.strip()]


def secret_lines(lesson):
    """The lines that stand in a reference answer and nowhere else in the lesson."""
    cells = read(lesson)
    public = set()
    secret = []
    for cell in cells:
        public.update(lines_of(released(cell.source, "")))
        inside = False
        for line in cell.source.splitlines():
            if BEGIN in line or END in line:
                inside = BEGIN in line
            elif inside:
                secret += lines_of(line)
    return [line for line in secret if line not in public]


def released_cells(lesson):
    return json.loads((ROOT / built_path("notebooks", lesson)).read_text(encoding="utf-8"))["cells"]


def test_there_are_lessons():
    assert LESSONS


@pytest.mark.parametrize("lesson", LESSONS)
def test_no_line_of_an_answer_is_handed_out(lesson):
    given = {line for cell in released_cells(lesson) for line in lines_of("".join(cell["source"]))}
    secret = secret_lines(lesson)
    assert secret, "the lesson has no answers, so this test looks in the wrong place"
    assert [line for line in secret if line in given] == []


@pytest.mark.parametrize("lesson", LESSONS)
def test_no_hidden_test_is_handed_out(lesson):
    text = (ROOT / built_path("notebooks", lesson)).read_text(encoding="utf-8")
    assert not re.search(r"\bgrade\(|import grade\b", text)
    for marker in ("HIDDEN TESTS", "BEGIN SOLUTION", "END SOLUTION", "MARK SCHEME"):
        assert marker not in text


@pytest.mark.parametrize("room", ["solutions", "notebooks"])
@pytest.mark.parametrize("lesson", LESSONS)
def test_nothing_was_run(room, lesson):
    notebook = json.loads((ROOT / built_path(room, lesson)).read_text(encoding="utf-8"))
    code = [cell for cell in notebook["cells"] if cell["cell_type"] == "code"]
    assert [cell["id"] for cell in code if cell["outputs"] or cell["execution_count"] is not None] == []
    assert "widgets" not in notebook["metadata"]


@pytest.mark.parametrize("room", ["solutions", "notebooks"])
def test_nothing_lies_beside_the_notebooks(room):
    # nbgrader hands out whatever lies beside a notebook, so a .py there would ship the answers.
    found = {
        path.relative_to(ROOT).as_posix()
        for path in (ROOT / room).rglob("*")
        if path.is_file() and not any(part.startswith(".") for part in path.relative_to(ROOT).parts)
    }
    assert found == {built_path(room, lesson) for lesson in LESSONS}


@pytest.mark.parametrize("lesson", LESSONS)
def test_a_released_notebook_stays_small(lesson):
    size = (ROOT / built_path("notebooks", lesson)).stat().st_size
    assert size <= MOST_BYTES, f"{lesson} has {size} bytes; split a long explanation or cut it"


def test_lessons_and_answers_are_not_in_the_wheel():
    setuptools = pytest.importorskip("setuptools")
    tomllib = pytest.importorskip("tomllib", reason="it came with Python 3.11")
    settings = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["tool"]["setuptools"]
    packages = setuptools.find_namespace_packages(str(ROOT), include=settings["packages"]["find"]["include"])
    assert {package.split(".")[0] for package in packages} == {"rankzero", "autograder"}
    assert "package-data" not in settings
