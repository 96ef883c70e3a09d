"""What a rank notes about itself in the middle of a call, on the same clock as its messages."""

from __future__ import annotations


def mark(name: str) -> None:
    """Note that something happens now. The marks come with the observation, and its timeline shows them.

    Outside a call on ranks, or in one that is not recorded, it does nothing: marks may stay in the code.
    """
    import sys

    # Where no recorder has been loaded none is at work, and torch need not be imported to know it.
    module = sys.modules.get("rankzero.observe.recorder")
    recorder = module.current() if module else None
    if recorder is not None:
        recorder.mark(str(name))
