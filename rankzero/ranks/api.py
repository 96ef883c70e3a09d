"""What a learner calls: run a function on ranks, watch it, keep ranks alive."""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import Any

from rankzero.observe.observation import Observation
from rankzero.ranks.errors import Interrupted
from rankzero.ranks.launch import Launch, checked_ranks
from rankzero.ranks.outcome import Outcome
from rankzero.ranks.report import Report


def run(
    fn: Callable,
    *args: Any,
    ranks: int = 4,
    timeout: float = 30.0,
    backend: str = "auto",
    record: bool = True,
    **kwargs: Any,
) -> list[Any]:
    """Run ``fn(*args, **kwargs)`` on ``ranks`` fresh processes and return what each returned, by rank.

    Inside, the default process group is up: ``torch.distributed.get_rank()`` works, and so do all collectives.
    Functions may come from notebook cells. What a rank prints is shown with its rank before it.

    Args:
        fn: any function; it and its arguments travel by cloudpickle.
        ranks: the world size, 1 to 64.
        timeout: seconds until ranks that have not come back are stopped and reported.
        backend: "auto" (NCCL where there is a GPU per rank, gloo otherwise), "gloo" or "nccl".
        record: False to measure short times. Writing down each call costs it some hundred microseconds; without,
            the report on a hang shows the ranks' lines, but not their calls.

    Raises:
        RankError: a rank raised or its process ended; the text shows the learner's own lines.
        HangError: ranks did not come back; the text says which rank waits in which call, at which line.
        TypeError: ``fn`` or an argument cannot be sent.
        ValueError: a world size or backend that cannot be.
    """
    with Ranks(ranks, backend=backend) as group:
        return group.run(fn, *args, timeout=timeout, record=record, **kwargs)


def watch(
    fn: Callable, *args: Any, ranks: int = 4, timeout: float = 30.0, backend: str = "auto", **kwargs: Any
) -> Observation:
    """As :func:`run`, and tell what was seen: results, every message, peak live bytes, times.

    Watching slows each operator down by some microseconds; do not time what is watched.
    """
    with Ranks(ranks, backend=backend) as group:
        return group.watch(fn, *args, timeout=timeout, **kwargs)


class Ranks:
    """Ranks that stay alive between calls, and keep what they loaded.

    ``with Ranks(4) as ranks: ranks.run(fn, …)``, or ``close()`` at the end. After a call that hangs or leaves
    messages behind, the processes are replaced by fresh ones at the next call.
    """

    def __init__(self, ranks: int = 4, backend: str = "auto"):
        self.ranks = checked_ranks(ranks)
        self._backend = backend
        self._launch: Launch | None = Launch(ranks, backend)

    def run(self, fn: Callable, *args: Any, timeout: float = 30.0, record: bool = True, **kwargs: Any) -> list[Any]:
        """Run ``fn`` on every rank; see :func:`run`."""
        outcome = self._call(fn, args, kwargs, timeout, recorded=record)
        return [outcome.result(rank) for rank in range(self.ranks)]

    def watch(self, fn: Callable, *args: Any, timeout: float = 30.0, **kwargs: Any) -> Observation:
        """Run ``fn`` on every rank and tell what was seen; see :func:`watch`."""
        return self._call(fn, args, kwargs, timeout, recorded=True, watched=True).observation()

    @property
    def fresh(self) -> bool:
        """Whether the next call will start on new processes, which know nothing of earlier calls."""
        return self._launch is None or not self._launch.usable

    def close(self) -> None:
        """End the ranks."""
        if self._launch is not None:
            self._launch.close()
        self._launch = None

    def __enter__(self) -> Ranks:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def __repr__(self) -> str:
        return f"Ranks({self.ranks}" + (", to be started anew)" if self.fresh else ")")

    def _call(
        self, fn: Callable, args: tuple, kwargs: dict, timeout: float, recorded: bool, watched: bool = False
    ) -> Outcome:
        if not callable(fn):
            raise TypeError(f"the first argument must be a function to run on the ranks, not {fn!r}")
        if self.fresh:
            self._launch = Launch(self.ranks, self._backend)
        arguments = [(args, kwargs)] * self.ranks
        try:
            outcome = self._launch.call(
                fn, arguments, timeout=timeout, watched=watched, recorded=recorded, write=sys.stdout.write
            )
        except KeyboardInterrupt as interrupt:
            if not hasattr(interrupt, "outcome"):
                self.close()
                raise
            report = Report.of(interrupt.outcome)
            tail = "" if self._launch.usable else "\nThe next call starts on fresh ranks."
            raise Interrupted(f"{report}{tail}", report) from None
        outcome.raise_for_failure()
        return outcome
