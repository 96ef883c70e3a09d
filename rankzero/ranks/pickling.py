"""Functions and their arguments as bytes: cloudpickle, which keeps here the file that each line came from."""

from __future__ import annotations

import io
from collections import ChainMap
from types import CodeType
from typing import Any, ClassVar

import cloudpickle

_reduce_anonymous = cloudpickle.CloudPickler.dispatch_table[CodeType]


def _reduce_code(code: CodeType) -> tuple:
    """Newer cloudpickles write "<dynamic-code>" for the file; hang reports and errors need the true one."""
    make, parts = _reduce_anonymous(code)
    return make, tuple(code.co_filename if part == "<dynamic-code>" else part for part in parts)


class _Pickler(cloudpickle.CloudPickler):
    dispatch_table: ClassVar = ChainMap({CodeType: _reduce_code}, cloudpickle.CloudPickler.dispatch_table)


def dumps(value: Any) -> bytes:
    """``value`` as a pickle; functions and classes of notebooks and scripts travel by value."""
    buffer = io.BytesIO()
    _Pickler(buffer).dump(value)
    return buffer.getvalue()


def pickling_error(name: str, value: Any, error: Exception) -> TypeError:
    """The error for a function or an argument that cannot travel to the ranks, naming the part at fault."""
    part = _part_at_fault(value, f"{name!r}")
    if part is None:
        return TypeError(f"{name} cannot be sent to the ranks: {error}")
    what, culprit, reason = part
    return TypeError(
        f"{name} cannot be sent to the ranks because of {what}, a {type(culprit).__name__}: {reason}. "
        "Make that object inside the function instead."
    )


def _part_at_fault(value: Any, what: str, depth: int = 0) -> tuple[str, Any, Exception] | None:
    """The innermost part that cannot be pickled: a closure's variable, a global, an element."""
    try:
        dumps(value)
        return None
    except Exception as reason:
        if depth < 4:
            for inner_what, inner in _parts(value):
                found = _part_at_fault(inner, inner_what, depth + 1)
                if found is not None:
                    return found
        return what, value, reason


def _parts(value: Any) -> list[tuple[str, Any]]:
    if isinstance(value, (list, tuple)):
        return [(f"element {number}", element) for number, element in enumerate(value)]
    if isinstance(value, dict):
        return [(f"the entry {key!r}", element) for key, element in value.items()]
    code = getattr(value, "__code__", None)
    if code is None:
        return []
    parts = []
    for name, cell in zip(code.co_freevars, value.__closure__ or (), strict=False):
        try:
            parts.append((f"the variable {name!r}", cell.cell_contents))
        except ValueError:  # not assigned yet
            continue
    used = [name for name in code.co_names if name in value.__globals__]
    return parts + [(f"the global {name!r}", value.__globals__[name]) for name in used]
