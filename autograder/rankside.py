"""What runs in the ranks when an answer is judged: load the answer, drive it with one rank's inputs."""

from __future__ import annotations

import linecache
import os
import pickle
import sys
import types
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

#: The answer of this rank process; each judged run has ranks of its own.
_answers = SimpleNamespace()


def load_source(source: str, filename: str, names: tuple[str, ...]) -> list[str]:
    """Run a file's source and keep the names that it defines; return those of ``names`` that it lacks."""
    module = types.ModuleType("answer")
    module.__file__ = filename
    sys.modules["answer"] = module
    sys.path.insert(0, os.path.dirname(filename))
    linecache.cache[filename] = (len(source), None, source.splitlines(keepends=True), filename)
    exec(compile(source, filename, "exec"), module.__dict__)
    _answers.__dict__.update({name: module.__dict__[name] for name in names if name in module.__dict__})
    return [name for name in names if name not in module.__dict__]


def load_pickle(answers: bytes, names: tuple[str, ...]) -> list[str]:
    """Unpickle the answers of a notebook and keep them under ``names``."""
    _answers.__dict__.update(zip(names, pickle.loads(answers), strict=True))
    return []


def drive(run: Callable[[SimpleNamespace, dict[str, Any]], Any], inputs: dict[str, Any]) -> Any:
    """Drive the loaded answer."""
    return run(_answers, inputs)
