"""What a learner has finished: one small file beside the notebooks, safe against two kernels at once."""

from __future__ import annotations

import contextlib
import json
import os
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import datetime, timezone
from html import escape
from pathlib import Path

from autograder.exercise import Exercise, all_exercises
from autograder.verdict import Verdict

FILE_NAME = ".rankzero-progress.json"


def progress_file() -> Path:
    """The file: the nearest one upwards, else that of ``make lab``, else a new one beside the notebook's folder."""
    here = Path.cwd()
    for folder in (here, *here.parents, here / "work"):
        if (folder / FILE_NAME).is_file():
            return folder / FILE_NAME
    in_lesson = here.name[:2].isdigit() and here.name[2:3] == "_"
    return (here.parent if in_lesson and os.access(here.parent, os.W_OK) else here) / FILE_NAME


def record(verdict: Verdict) -> None:
    """Remember a verdict; the best points count. A folder that cannot be written is no reason to fail."""
    path = progress_file()
    with contextlib.suppress(OSError), _locked(path):
        entries = read(path)
        before = entries.get(verdict.exercise, {})
        entries[verdict.exercise] = {
            "points": max(verdict.points, before.get("points", 0.0)),
            "passed": verdict.passed or before.get("passed", False),
            "tries": before.get("tries", 0) + 1,
            "last": datetime.now(timezone.utc).isoformat(timespec="seconds"),
        }
        _write(path, entries)


def read(path: Path) -> dict[str, dict]:
    """The entries by exercise id; empty if there is no file, or one that cannot be read."""
    try:
        entries = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return {}
    return entries if isinstance(entries, dict) else {}


@dataclass(frozen=True)
class Progress:
    """Which exercises are done, lesson by lesson."""

    exercises: list[Exercise]
    entries: dict[str, dict]

    @property
    def next_step(self) -> Exercise | None:
        """The first exercise that has not been passed."""
        return next((one for one in self.exercises if not self._passed(one)), None)

    def lessons(self) -> dict[str, list[Exercise]]:
        """The exercises by lesson, in order."""
        by_lesson: dict[str, list[Exercise]] = {}
        for exercise in self.exercises:
            by_lesson.setdefault(exercise.lesson, []).append(exercise)
        return by_lesson

    def points(self, exercises: list[Exercise]) -> tuple[float, float]:
        """Earned and possible points of some exercises."""
        earned = sum(float(self.entries.get(one.id, {}).get("points", 0.0)) for one in exercises)
        return earned, sum(one.points for one in exercises)

    def as_json(self) -> dict:
        """Plain data, for ``rankzero progress --json``."""
        lessons = {
            lesson: {
                "points": self.points(exercises)[0],
                "max_points": self.points(exercises)[1],
                "exercises": {one.id: self.entries.get(one.id) for one in exercises},
            }
            for lesson, exercises in self.lessons().items()
        }
        return {"lessons": lessons, "next": self.next_step.id if self.next_step else None}

    def __str__(self) -> str:
        lines = []
        for lesson, exercises in self.lessons().items():
            earned, possible = self.points(exercises)
            lines.append(f"{lesson}: {earned:g} of {possible:g} points")
            lines += [f"  {self._state(one):<9} {one.id}" for one in exercises]
        lines.append(f"next: {self.next_step.id}" if self.next_step else "all exercises are done")
        return "\n".join(lines)

    __repr__ = __str__

    def _repr_html_(self) -> str:
        rows = []
        for lesson, exercises in self.lessons().items():
            earned, possible = self.points(exercises)
            done = sum(self._passed(one) for one in exercises)
            states = ", ".join(f"{escape(one.id)} ({self._state(one)})" for one in exercises)
            rows.append(
                f"<tr><td style='text-align:left'>{escape(lesson)}</td><td>{done} of {len(exercises)}</td>"
                f"<td>{earned:g} of {possible:g}</td><td style='text-align:left'>{states}</td></tr>"
            )
        head = "<tr><th>lesson</th><th>exercises</th><th>points</th><th>each</th></tr>"
        step = f"Next: <b>{escape(self.next_step.id)}</b>" if self.next_step else "All exercises are done."
        return f"<table>{head}{''.join(rows)}</table><p>{step}</p>"

    def _passed(self, exercise: Exercise) -> bool:
        return bool(self.entries.get(exercise.id, {}).get("passed"))

    def _state(self, exercise: Exercise) -> str:
        entry = self.entries.get(exercise.id)
        return "open" if entry is None else "right" if entry.get("passed") else "not yet"


def progress() -> Progress:
    """What has been finished so far, by the checks that ran here."""
    return Progress(all_exercises(), read(progress_file()))


@contextlib.contextmanager
def _locked(path: Path) -> Iterator[None]:
    import fcntl

    with open(path.with_suffix(".lock"), "w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield


def _write(path: Path, entries: dict) -> None:
    """Replace the file in one step, so that a reader sees the old one or the new one, never half of it."""
    handle, name = tempfile.mkstemp(dir=path.parent, prefix=FILE_NAME)
    with os.fdopen(handle, "w", encoding="utf-8") as file:
        json.dump(entries, file, indent=1)
    os.replace(name, path)
