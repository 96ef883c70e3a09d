"""What a lesson must keep to, so that its notebooks can be built, graded and given to students."""

from __future__ import annotations

import ast
import re
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

from autograder import exercise as exercises
from autograder.exercise import UnknownExercise
from autograder.lessons import BEGIN, END, ROOT, Cell, LessonError, read

#: What stands in a student's notebook where the reference answer stood.
CODE_STUB = 'raise NotImplementedError("write your answer here")'
TEXT_STUB = "*Write your answer here.*"


def checked(lesson: str, root: Path = ROOT) -> list[Cell]:
    """The cells of a lesson, after everything that the build relies on was found in order.

    Raises:
        LessonError: one line for each thing to mend.
    """
    cells = read(lesson, root)
    problems = []
    for cell in cells:
        problems += [f"lessons/{lesson}.py, line {cell.line}: {problem}" for problem in _cell_problems(cell, lesson)]
    problems += [f"lessons/{lesson}.py: {problem}" for problem in _lesson_problems(cells, lesson)]
    if problems:
        raise LessonError("\n".join(problems))
    return cells


def released(source: str, stub: str) -> str:
    """What students get of a solution cell: the marked regions replaced by ``stub``, as nbgrader does it."""
    lines: list[str] = []
    inside = False
    for line in source.splitlines():
        if BEGIN in line:
            inside = True
            lines.append(line[: len(line) - len(line.lstrip())] + stub)
        elif END in line:
            inside = False
        elif not inside:
            lines.append(line)
    return "\n".join(lines)


def _cell_problems(cell: Cell, lesson: str) -> Iterator[str]:
    if "HIDDEN TESTS" in cell.source or "MARK SCHEME" in cell.source:
        yield "Hidden tests and mark schemes are nbgrader's markers; the build adds what is needed."
    marks = [BEGIN if BEGIN in line else END for line in cell.source.splitlines() if BEGIN in line or END in line]
    if cell.kind in ("solution", "words"):
        if not marks:
            yield f"The cell of {cell.id} has no `### {BEGIN}` and `### {END}` around its reference answer."
        elif marks != [BEGIN, END] * (len(marks) // 2):
            yield f"In the cell of {cell.id}, each `### {BEGIN}` needs one `### {END}` after it."
        elif cell.kind == "solution":
            yield from _solution_problems(cell, lesson)
    elif marks:
        yield f"`{marks[0]}` stands in a cell that is not marked `solution ID` or `words ID POINTS`."
    if cell.kind == "tests":
        yield from _tests_problems(cell, lesson)
    if cell.kind == "setup" and cell.source.strip():
        yield "The cell marked `setup` must be empty; the build fills it."
    if cell.kind == "quiz" and not re.fullmatch(r"quiz\([\"']\w+[\"']\)", cell.source.strip()):
        yield 'A cell marked `quiz` holds one line such as `quiz("quiz_00")`.'


def _solution_problems(cell: Cell, lesson: str) -> Iterator[str]:
    first = f"# exercise: {cell.id}"
    if cell.source.splitlines()[0].strip() != first:
        yield f"The first line of the cell of {cell.id} must be `{first}`."
    try:
        ast.parse(cell.source)
        ast.parse(released(cell.source, CODE_STUB))
    except SyntaxError as error:
        yield f"The cell of {cell.id} is not Python, with or without its reference answer: {error.msg}."
    yield from _id_problems(cell, lesson)


def _tests_problems(cell: Cell, lesson: str) -> Iterator[str]:
    problems = list(_id_problems(cell, lesson))
    yield from problems
    names = () if problems else exercises.find(cell.id).names
    wanted = ", ".join((f'check("{cell.id}"', *names)) + ")"
    if not problems and ast.unparse(ast.parse(wanted)) != _unparsed(cell.source):
        yield f"The cell marked `tests {cell.id}` must hold `{wanted}` and no other code."


def _unparsed(source: str) -> str:
    try:
        return ast.unparse(ast.parse(source))
    except SyntaxError:
        return ""


def _id_problems(cell: Cell, lesson: str) -> Iterator[str]:
    try:
        found = exercises.find(cell.id)
    except UnknownExercise as error:
        yield f"{str(error)[:1].upper()}{str(error)[1:]}."
        return
    if found.lesson != lesson:
        yield f"The exercise {cell.id} belongs to the lesson {found.lesson}."


def _lesson_problems(cells: list[Cell], lesson: str) -> Iterator[str]:
    """What no cell can be blamed for alone."""
    code = [cell for cell in cells if not cell.is_text]
    if [cell.kind for cell in code].count("setup") != 1 or code[0].kind != "setup":
        yield "Exactly one cell must be marked `setup`, and no code may come before it."
    for kind in ("solution", "tests", "words"):
        counts = Counter(cell.id for cell in cells if cell.kind == kind)
        yield from (f"{count} cells are marked `{kind} {name}`." for name, count in counts.items() if count > 1)
    solutions = {cell.id: cell.line for cell in cells if cell.kind == "solution"}
    tests = {cell.id: cell.line for cell in cells if cell.kind == "tests"}
    yield from (f"There is no cell marked `tests {name}`." for name in solutions if name not in tests)
    yield from (f"There is no cell marked `solution {name}`." for name in tests if name not in solutions)
    yield from (
        f"The cell marked `tests {name}` must come after its solution."
        for name, line in tests.items()
        if line < solutions.get(name, 0)
    )
    known = [one.id for one in exercises.all_exercises() if one.lesson == lesson]
    yield from (
        f"The exercise {name} is not set: there is no cell marked `solution {name}`."
        for name in known
        if name not in solutions and name not in tests
    )
