"""An instructor's first minute: a small class hands in, stock nbgrader grades it, and the scores are shown."""

from __future__ import annotations

import argparse
import re
import sys
import tempfile
import time
from pathlib import Path

from autograder.lessons import ROOT, answer_sources
from autograder.submissions import Classroom, fill

LESSONS = ("00_start_here", "04_collectives")

#: Who hands in what: a line on each student, and the cells in which the answer is not the reference's.
#: None stands for a cell that was left as it was given out.
CLASS: dict[str, tuple[str, dict[str, str | None]]] = {
    "ada": ("all right", {}),
    "ben": (
        "some wrong: slips that look right",
        {
            "my_share": """\
def my_share(n_items, rank, world_size):
    size = n_items // world_size  # and the remainder?
    return range(rank * size, (rank + 1) * size)""",
            "sum_over_ranks": """\
def sum_over_ranks(value):
    tensor = torch.tensor(value)  # float32
    dist.all_reduce(tensor)
    return tensor.item()""",
            "bus_bandwidth": """\
def bus_bandwidth(n_bytes, seconds, ranks):
    return n_bytes / seconds""",
            "quiz_04": 'answers = {"q1": "a", "q2": "a", "q3": "d"}',
        },
    ),
    "cleo": (
        "two answers that wait for ever",
        {
            "fix_the_hang": """\
def rank_zero_reports(value):
    if dist.get_rank() == 0:
        mean = value.clone()
        dist.all_reduce(mean)
        return mean / dist.get_world_size()""",
            "ring_all_reduce": """\
def ring_all_reduce(tensor):
    rank, n = dist.get_rank(), dist.get_world_size()
    incoming = torch.empty_like(tensor)
    for _ in range(n - 1):
        dist.recv(incoming, src=(rank - 1) % n)  # every rank waits here
        dist.send(tensor, dst=(rank + 1) % n)
        tensor += incoming""",
        },
    ),
    "dan": (
        "one cell ends the notebook's process",
        {"fix_the_hang": "import os\n\nos._exit(1)", "fit_alpha_beta": "import os\n\nos._exit(1)"},
    ),
    "eve": ("nothing filled in", {}),
}
EMPTY = "eve"


def hand_in(room: Classroom, lesson: str, root: Path) -> None:
    """The whole class hands in one lesson."""
    notebook = room.released(lesson)
    right = answer_sources(lesson, root)
    words = {
        cell.metadata.nbgrader.grade_id: "Because every rank has to take part."
        for cell in notebook.cells
        if cell.cell_type == "markdown" and cell.metadata.get("nbgrader", {}).get("solution")
    }
    imports = "import torch\nimport torch.distributed as dist\n\n\n"
    for student, (_, own) in CLASS.items():
        answers = {} if student == EMPTY else {**right, **words}
        for name, source in own.items():
            if name in right:
                answers[name] = f"# exercise: {name}\n{imports}{source}"
        room.hand_in(student, lesson, fill(notebook, answers))


def table(scores: dict[str, dict[str, float | None]], most: dict[str, float]) -> str:
    """Scores as text: a row for each graded cell, a column for each student."""
    students = sorted(scores)
    width = max(map(len, most)) + 2
    rows = ["".join((f"{'':<{width}}{'of':>6}", *(f"{student:>7}" for student in students)))]
    for name, points in most.items():
        earned = (scores[student].get(name) for student in students)
        cells = (f"{'?' if score is None else format(score, 'g'):>7}" for score in earned)
        rows.append("".join((f"{name.removeprefix('test_'):<{width}}{points:>6g}", *cells)))
    totals = (f"{sum(score or 0.0 for score in scores[student].values()):>7g}" for student in students)
    rows.append("".join((f"{'all':<{width}}{sum(most.values()):>6g}", *totals)))
    return "\n".join(rows)


def run(folder: Path, root: Path = ROOT, lessons: tuple[str, ...] = LESSONS) -> Classroom:
    """Grade the class in ``folder``, saying what happens."""
    say(f"A course folder is made in {folder}: the solved notebooks, and the ones for students.")
    room = Classroom(folder, list(lessons), root)
    say("The class hands in:")
    for student, (what, _) in CLASS.items():
        print(f"    {student:<6} {what}")
    for lesson in lessons:
        hand_in(room, lesson, root)
        started = time.perf_counter()
        say(f"nbgrader autograde {lesson}")
        room.nbgrader("autograde", lesson, on_line=_show_student)
        say(f"nbgrader generate_feedback {lesson}")
        room.nbgrader("generate_feedback", lesson)
        say(f"{lesson}: {len(CLASS)} submissions in {time.perf_counter() - started:.0f} s")
        print(table(room.scores(lesson), most_points(room, lesson)), flush=True)
    return room


def most_points(room: Classroom, lesson: str) -> dict[str, float]:
    """What each graded cell of a lesson is worth, in the lesson's order."""
    settings = (cell.metadata.get("nbgrader", {}) for cell in room.released(lesson).cells)
    return {one["grade_id"]: float(one["points"]) for one in settings if one.get("grade")}


def say(text: str) -> None:
    """Print a line at once."""
    print(text, flush=True)


def _show_student(line: str) -> None:
    match = re.search(r"Autograding .*autograded.(\w+).", line)
    if match:
        say(f"    {match[1]} …")


def main(arguments: list[str] | None = None) -> int:
    """Entry of ``python -m autograder.demo``; returns the exit status."""
    parser = argparse.ArgumentParser(prog="python -m autograder.demo", description=__doc__)
    parser.add_argument("folder", nargs="?", type=Path, help="a new folder for the class; by default a temporary one")
    folder = parser.parse_args(arguments).folder
    if folder is not None and folder.exists() and any(folder.iterdir()):
        print(f"{folder} is not empty; name a new folder, so that no grades are overwritten", file=sys.stderr)
        return 2
    room = run((folder or Path(tempfile.mkdtemp(prefix="rankzero-demo-"))).resolve())
    student = "cleo"
    say("\nA `?` waits for a person: answers in own words are graded in nbgrader's formgrader.")
    say(f"Everything is kept in {room.folder}. What {student} reads, for instance why an answer hangs:")
    for lesson in LESSONS:
        print(f"    {room.feedback(student, lesson)}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
