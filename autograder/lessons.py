"""Reads lessons: the cells of ``lessons/NN_name.py`` with their marks, and the reference answers in them."""

from __future__ import annotations

import ast
import re
from dataclasses import dataclass
from pathlib import Path
from typing import Any

#: The repository; lessons are not part of the installed package.
ROOT = Path(__file__).resolve().parent.parent

#: The marks, as they stand in a cell's title, and what follows the first word.
MARKS = {
    "setup": (),
    "solution": ("ID",),
    "tests": ("ID",),
    "predict": (),
    "measure": (),
    "quiz": (),
    "words": ("ID", "POINTS"),
}

BEGIN, END = "BEGIN SOLUTION", "END SOLUTION"


class LessonError(ValueError):
    """A lesson is not written as the build needs it; each line of the text is one thing to mend."""


@dataclass(frozen=True)
class Cell:
    """One cell of a lesson.

    ``kind`` is a mark's first word, or "prose" (markdown) or "code" for a cell without a mark. ``id`` is the
    exercise's, or that of a question in words. ``line`` is the line of the lesson file on which ``source``
    begins.
    """

    kind: str
    source: str
    line: int
    id: str = ""
    points: float = 0.0

    @property
    def is_text(self) -> bool:
        """Whether it is a markdown cell."""
        return self.kind in ("prose", "words")


def lessons(root: Path = ROOT) -> list[str]:
    """The names of all lessons, such as ``"04_collectives"``, in order."""
    return sorted(path.stem for path in (root / "lessons").glob("[0-9][0-9]_*.py"))


def lesson_path(lesson: str, root: Path = ROOT) -> Path:
    """The file of a lesson.

    Raises:
        LessonError: there is no such lesson here.
    """
    path = root / "lessons" / f"{lesson}.py"
    if path.is_file():
        return path
    known = ", ".join(lessons(root))
    if not known:
        raise LessonError(f"There are no lessons below {root}; they come with a clone of the repository.")
    raise LessonError(f"There is no lesson {lesson!r}; there are: {known}.")


def read(lesson: str, root: Path = ROOT) -> list[Cell]:
    """The cells of a lesson.

    Raises:
        LessonError: there is no such lesson, or a cell's mark is not one.
    """
    import jupytext

    path = lesson_path(lesson, root)
    text = path.read_text(encoding="utf-8")
    raw_cells = [cell for cell in jupytext.reads(text, fmt="py:percent").cells if cell.cell_type != "raw"]
    lines = text.splitlines()
    starts = [number for number, line in enumerate(lines, start=1) if re.match(r"# %%(\s|$)", line)]
    if len(starts) != len(raw_cells):
        raise LessonError(
            f"lessons/{path.name}: {len(starts)} lines begin with `# %%`, but {len(raw_cells)} cells were read. "
            "Every cell begins with such a line, also the first, and no string may contain one."
        )
    problems: list[str] = []
    cells = []
    for start, raw in zip(starts, raw_cells, strict=True):
        try:
            cells.append(_cell(raw, _first_line(lines, start, raw.source)))
        except LessonError as error:
            problems.append(f"lessons/{path.name}, line {start}: {error}")
    if problems:
        raise LessonError("\n".join(problems))
    return cells


def _first_line(lines: list[str], start: int, source: str) -> int:
    """The line on which a cell's text begins; jupytext drops blank lines after the mark."""
    line = start + 1
    if source.strip() and source.splitlines()[0].strip():
        while not lines[line - 1].strip():
            line += 1
    return line


def _cell(raw: Any, line: int) -> Cell:
    words = raw.metadata.get("title", "").split()
    is_text = raw.cell_type == "markdown"
    if not words:
        return Cell("prose" if is_text else "code", raw.source, line)
    kind, *rest = words
    wanted = MARKS.get(kind)
    if wanted is None:
        raise LessonError(f"`{kind}` is no cell mark; the marks are {', '.join(MARKS)}.")
    if len(rest) != len(wanted):
        raise LessonError(f"The mark must read `# %% {' '.join((kind, *wanted))}`, not `# %% {' '.join(words)}`.")
    if is_text and kind != "words":
        raise LessonError(f"A cell marked `{kind}` holds code, not markdown.")
    name = rest[0] if rest else ""
    if name and not re.fullmatch(r"[A-Za-z]\w*", name):
        raise LessonError(f"The id {name!r} must be a word of letters, digits and underscores.")
    if kind != "words":
        return Cell(kind, raw.source, line, name)
    if not re.fullmatch(r"\d+(\.\d+)?", rest[1]):
        raise LessonError(f"The points of {name} must be a number, not {rest[1]!r}.")
    return Cell(kind, raw.source if is_text else _uncommented(raw.source), line, name, float(rest[1]))


def _uncommented(source: str) -> str:
    """Markdown that was written as comments."""
    lines = source.splitlines()
    if not all(line.startswith("#") for line in lines):
        raise LessonError("A cell marked `words` holds markdown, each line of it behind a `#`.")
    return "\n".join(re.sub(r"^# ?", "", line) for line in lines)


def answer_sources(lesson: str, root: Path = ROOT) -> dict[str, str]:
    """The reference answers as source text, by exercise id: what a right student's cell holds."""
    return {
        cell.id: "\n".join(line for line in cell.source.splitlines() if BEGIN not in line and END not in line)
        for cell in read(lesson, root)
        if cell.kind == "solution"
    }


def reference(lesson: str, root: Path = ROOT) -> dict[str, Any]:
    """The names that a lesson's reference answers define, by running its solution cells and nothing else.

    Imports that stand at the top level of its unmarked cells are carried out too, since an answer may use
    them. The functions count as ``__main__``'s, as in a notebook's kernel: they travel to ranks by value,
    and errors show the lesson file's lines.
    """
    path = str(lesson_path(lesson, root))
    namespace: dict[str, Any] = {"__name__": "__main__"}
    for cell in read(lesson, root):
        if cell.kind == "solution":
            tree = ast.parse(cell.source, path)
        elif cell.kind == "code":
            tree = _imports(cell.source)
        else:
            continue
        ast.increment_lineno(tree, cell.line - 1)
        exec(compile(tree, path, "exec", dont_inherit=True), namespace)
    return namespace


def _imports(source: str) -> ast.Module:
    """The top-level imports of a cell; a cell with magics has none for us."""
    try:
        body = ast.parse(source).body
    except SyntaxError:
        body = []
    imports = [node for node in body if isinstance(node, (ast.Import, ast.ImportFrom))]
    return ast.Module(body=imports, type_ignores=[])
