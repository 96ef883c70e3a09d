"""Rank Zero: real ranks in a notebook, and what a training run needs to know about memory and machines.

Importing this package is cheap: torch and matplotlib are loaded when they are first needed.
"""

from __future__ import annotations

import importlib
from typing import Any

__version__ = "0.1.0"

#: name → module that defines it
_EXPORTS = {
    "run": "rankzero.ranks.api",
    "watch": "rankzero.ranks.api",
    "Ranks": "rankzero.ranks.api",
    "warm_up": "rankzero.ranks.warm",
    "LaunchError": "rankzero.ranks.errors",
    "RankError": "rankzero.ranks.errors",
    "HangError": "rankzero.ranks.errors",
    "Observation": "rankzero.observe.observation",
    "Message": "rankzero.observe.observation",
    "live_bytes": "rankzero.observe.live",
    "saved_tensors": "rankzero.observe.saved",
    "watch_step": "rankzero.observe.step",
    "mark": "rankzero.observe.mark",
    "moment": "rankzero.observe.moment",
    "Moment": "rankzero.observe.moment",
    "doctor": "rankzero.machine",
    "load_ipython_extension": "rankzero.ranks.magic",
}

__all__ = ["__version__", *_EXPORTS]


def __getattr__(name: str) -> Any:
    if name not in _EXPORTS:
        raise AttributeError(f"module 'rankzero' has no attribute {name!r}")
    value = getattr(importlib.import_module(_EXPORTS[name]), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted(__all__)
