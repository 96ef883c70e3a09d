"""nbgrader's settings for this course; the file of the same name at the root loads them."""

from __future__ import annotations

import secrets
from typing import Any

#: One cell may take this long when it is graded; judged answers have much shorter limits of their own.
CELL_SECONDS = 120


def settings() -> dict[str, Any]:
    """The settings by class, as plain data."""
    return {
        "CourseDirectory": {
            "course_id": "rank-zero",
            "source_directory": "solutions",
            "release_directory": "notebooks",
        },
        "ClearSolutions": {
            "code_stub": {"python": 'raise NotImplementedError("write your answer here")'},
            "text_stub": "*Write your answer here.*",
        },
        "Autograde": {
            "autograde_preprocessors": [
                "autograder.preprocessors.JudgedExecute",
                "nbgrader.preprocessors.LimitOutput",
                "nbgrader.preprocessors.SaveAutoGrades",
                "nbgrader.preprocessors.AssignLatePenalties",
                "nbgrader.preprocessors.CheckCellMetadata",
            ],
        },
        "ExecutePreprocessor": {
            "timeout": CELL_SECONDS,
            "kernel_name": "python3",
            # A student's own tag must not keep a test cell from running.
            "skip_cells_with_tag": f"skip-{secrets.token_hex(8)}",
        },
        "LimitOutput": {"max_lines": 500, "max_traceback": 60},
    }


def _apply() -> None:
    for name, traits in settings().items():
        for trait, value in traits.items():
            setattr(getattr(c, name), trait, value)


if "c" in globals() or "get_config" in globals():
    c = get_config()
    _apply()
