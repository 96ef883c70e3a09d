"""What ranks print, kept apart by rank: short calls in the order of the ranks, long ones as it comes."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable

#: What is shown of one rank's output in one call; the rest is counted, not kept.
MAX_SHOWN_BYTES = 64 * 1024
#: After this long, lines are shown as they come instead of being sorted by rank at the end.
_LIVE_AFTER_SECONDS = 1.0


class Output:
    """Collects the ranks' output; ``write(text)`` shows it, or None to keep it only."""

    def __init__(self, ranks: int, write: Callable[[str], object] | None):
        self.text = [""] * ranks
        self._write = write
        self._pending = [b""] * ranks
        self._seen = [0] * ranks
        self._began = time.monotonic()

    def feed(self, rank: int, data: bytes) -> None:
        """Bytes that a rank wrote."""
        room = MAX_SHOWN_BYTES - self._seen[rank]
        self._seen[rank] += len(data)
        if room > 0:
            self._pending[rank] += data[:room]

    def tick(self) -> None:
        """Show whole lines as they come, once the call has taken long enough."""
        if self._write is not None and time.monotonic() - self._began > _LIVE_AFTER_SECONDS:
            for rank in range(len(self._pending)):
                self._show(rank, whole_lines=True)
            sys.stdout.flush()

    def finish(self) -> None:
        """The call has ended: show what is left, and how much was cut."""
        for rank, seen in enumerate(self._seen):
            self._show(rank, whole_lines=False)
            if seen > MAX_SHOWN_BYTES:
                self._emit(rank, f"… {seen - MAX_SHOWN_BYTES:,} more bytes are not shown")
        if self._write is not None:
            sys.stdout.flush()

    def _show(self, rank: int, whole_lines: bool) -> None:
        pending = self._pending[rank]
        cut = pending.rfind(b"\n") + 1 if whole_lines else len(pending)
        self._pending[rank] = pending[cut:]
        for line in pending[:cut].decode("utf-8", "replace").splitlines():
            self._emit(rank, line)

    def _emit(self, rank: int, line: str) -> None:
        self.text[rank] += line + "\n"
        if self._write is not None:
            self._write(f"rank {rank} │ {line}\n")
