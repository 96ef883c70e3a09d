"""The instructor's seed, from which the hidden cases are drawn: one for each course folder, kept from students."""

from __future__ import annotations

import contextlib
import os
import secrets
import tempfile
from pathlib import Path

SEED_VARIABLE = "AUTOGRADER_SEED"
FILE_NAME = ".autograder-seed"


def instructor_seed(course: Path) -> int:
    """The seed of a course folder; the first use makes one up and keeps it in a file that only its owner reads.

    The environment variable ``AUTOGRADER_SEED`` wins over the file.

    Raises:
        ValueError: the variable or the file does not hold a whole number.
    """
    path = course / FILE_NAME
    text = os.environ.get(SEED_VARIABLE)
    where = SEED_VARIABLE
    if text is None:
        where = str(path)
        if not path.exists():
            _create(path)
        text = path.read_text(encoding="ascii", errors="replace")
    try:
        return int(text)
    except ValueError:
        raise ValueError(f"{where} must hold a whole number, the seed of the hidden cases, not {text!r}") from None


def _create(path: Path) -> None:
    """Write a new seed whole or not at all: several graders may start at once, and the first one wins."""
    handle, name = tempfile.mkstemp(dir=path.parent, prefix=FILE_NAME)  # readable by its owner only
    try:
        with os.fdopen(handle, "w") as file:
            file.write(f"{secrets.randbits(62)}\n")
        with contextlib.suppress(FileExistsError):
            os.link(name, path)
    finally:
        os.unlink(name)
