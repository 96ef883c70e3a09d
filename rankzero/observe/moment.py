"""What a watched rank can ask about itself in the middle of a call."""

from __future__ import annotations

from typing import NamedTuple


class Moment(NamedTuple):
    """Where a watched rank stands.

    Attributes:
        calls: its calls into torch.distributed so far, so the index of its next message.
        live_bytes: the bytes of tensors made during the call that are alive now.
        peak_bytes: the most that was alive since the call began, or since a moment that restarted the peak.
    """

    calls: int
    live_bytes: int
    peak_bytes: int


def moment(restart_peak: bool = False) -> Moment:
    """Where this rank stands now; only inside a function that :func:`rankzero.watch` runs.

    Args:
        restart_peak: count the peak anew from here on.

    Raises:
        RuntimeError: nobody watches.
    """
    from rankzero.observe.recorder import current

    recorder = current()
    if recorder is None or recorder.memory is None:
        raise RuntimeError("moment() works only inside a function that rankzero.watch(…) runs on ranks")
    now = Moment(recorder.calls, recorder.memory.live_bytes(), recorder.memory.peak_bytes)
    if restart_peak:
        recorder.memory.restart_peak()
    return now
