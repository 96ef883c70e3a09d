"""The exercises of the course and their judgement: ``check`` for the learner, ``grade`` for nbgrader."""

from __future__ import annotations

import importlib
from typing import Any

#: name → module that defines it; loaded when first used, so that importing a part costs only that part
_EXPORTS = {
    "check": "autograder.checking",
    "grade": "autograder.checking",
    "CheckFailed": "autograder.checking",
    "progress": "autograder.ledger",
    "quiz": "autograder.quizzes",
}

__all__ = list(_EXPORTS)


def __getattr__(name: str) -> Any:
    if name not in _EXPORTS:
        raise AttributeError(f"module 'autograder' has no attribute {name!r}")
    value = getattr(importlib.import_module(_EXPORTS[name]), name)
    globals()[name] = value
    return value
