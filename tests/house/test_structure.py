"""The rooms import one another in one direction only."""

import ast
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
#: What a cell of a lesson may import besides the standard library.
FOR_STUDENTS = {"rankzero", "autograder", "torch", "numpy", "matplotlib", "ipywidgets"}
#: What it may try to import as well: where it is missing, the cell says so and goes on.
IF_THERE = {"transformers", "accelerate"}


def imported(path):
    """The top-level packages that a file imports, wherever in it."""
    return imported_in(ast.walk(ast.parse(path.read_text(encoding="utf-8"))))


def guarded(path):
    """Those that it imports only in a ``try`` that has an answer to ImportError."""
    tried, others = [], []
    for statement in ast.parse(path.read_text(encoding="utf-8")).body:
        for_it = isinstance(statement, ast.Try) and any(
            isinstance(handler.type, ast.Name) and handler.type.id == "ImportError" for handler in statement.handlers
        )
        (tried if for_it else others).extend(ast.walk(statement))
    return imported_in(tried) - imported_in(others)


def imported_in(nodes):
    names = set()
    for node in nodes:
        if isinstance(node, ast.Import):
            names.update(alias.name.split(".")[0] for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and node.module:
            names.add(node.module.split(".")[0])
    return names


@pytest.mark.parametrize("room", ["rankzero", "autograder"])
def test_the_library_knows_nothing_of_the_autograder_and_neither_of_lessons_or_tests(room):
    forbidden = {"lessons", "tests", "solutions", "benchmarks"} | ({"autograder"} if room == "rankzero" else set())
    for path in (ROOT / room).rglob("*.py"):
        assert not imported(path) & forbidden, path


def test_lessons_import_only_what_a_student_has():
    import sys

    for path in (ROOT / "lessons").glob("*.py"):
        allowed = FOR_STUDENTS | (IF_THERE & guarded(path)) | set(sys.stdlib_module_names)
        assert imported(path) <= allowed, path


def test_importing_the_packages_loads_nothing_heavy():
    import subprocess
    import sys

    script = "import sys, rankzero, autograder; print(sorted({'torch', 'matplotlib', 'nbgrader'} & set(sys.modules)))"
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True)
    assert done.stdout.strip() == "[]", done.stderr
