"""How much GPU memory a training run takes: by formula, by a trace of the real model, and measured.

``estimate`` adds up closed formulas and is instant; ``trace`` runs the real model on tensors that have no memory;
both give the same number within a few per cent, which is tested.
"""

from __future__ import annotations

import importlib
from typing import Any

#: name → module that defines it; loaded when first used. No module is called as what it defines: importing it would
#: put the module in the name's place.
_EXPORTS = {
    "Run": "rankzero.vram.run",
    "Model": "rankzero.vram.model",
    "load_model": "rankzero.vram.model",
    "count_parameters": "rankzero.vram.parameters",
    "Estimate": "rankzero.vram.estimator",
    "estimate": "rankzero.vram.estimator",
    "trace": "rankzero.vram.tracer",
    "measure": "rankzero.vram.measuring",
    "calculator": "rankzero.vram.widget",
}

__all__ = list(_EXPORTS)


def __getattr__(name: str) -> Any:
    if name not in _EXPORTS:
        raise AttributeError(f"module 'rankzero.vram' has no attribute {name!r}")
    return getattr(importlib.import_module(_EXPORTS[name]), name)


def __dir__() -> list[str]:
    return sorted(__all__)
