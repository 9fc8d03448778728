"""Where a worker's time goes: every instant belongs to exactly one activity.

The engine enters activities; whoever owns the cells (a list in tests, memory
shared with the agent in an executor) can read them at any time, also after the
executor's death. Cell ``i`` holds the seconds of the i-th activity that ended.
"""

import enum
import time
from collections.abc import Callable, Iterator, MutableSequence
from contextlib import contextmanager


class Activity(enum.IntEnum):
    """What a worker does; the order is the order of the ledger's cells."""

    FORWARD = 0
    BACKWARD = 1
    STEP = 2
    WAIT_ACTIVATION = 3
    WAIT_GRADIENT = 4
    WAIT_SEND = 5
    WAIT_DATA = 6
    WAIT_COMMAND = 7
    REDUCE = 8
    SAVE = 9
    LOAD = 10
    OTHER = 11

    @property
    def is_compute(self) -> bool:
        """Whether the worker itself computes; only then can it be stuck."""
        return self in (Activity.FORWARD, Activity.BACKWARD, Activity.STEP)


BUSY_OPS = {Activity.FORWARD: "F", Activity.BACKWARD: "B", Activity.STEP: "step"}
"""Value of the metric label ``op`` of the busy activities."""

IDLE_REASONS = {
    Activity.WAIT_ACTIVATION: "activation",
    Activity.WAIT_GRADIENT: "gradient",
    Activity.WAIT_SEND: "send",
    Activity.WAIT_DATA: "data",
    Activity.WAIT_COMMAND: "command",
    Activity.REDUCE: "reduce",
    Activity.SAVE: "checkpoint",
    Activity.LOAD: "other",
    Activity.OTHER: "other",
}
"""Value of the metric label ``reason`` of the idle activities."""


class Ledger:
    """Assigns time to activities. One thread writes; busy plus idle is all time."""

    def __init__(
        self,
        *,
        cells: MutableSequence[float] | None = None,
        on_switch: Callable[[Activity, float], None] | None = None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        """Start in ``OTHER``.

        Args:
            cells: one cell an activity, in seconds; a new list where absent.
            on_switch: told of each new activity and the time it began, in the clock's seconds.
            clock: seconds.
        """
        self._cells = cells if cells is not None else [0.0] * len(Activity)
        self._on_switch = on_switch
        self._clock = clock
        self._activity = Activity.OTHER
        self._since = clock()

    def enter(self, activity: Activity) -> Activity:
        """End the present activity, begin ``activity``, return the one that ended."""
        now = self._clock()
        ended = self._activity
        self._cells[ended] += now - self._since
        self._activity, self._since = activity, now
        if self._on_switch is not None:
            self._on_switch(activity, now)
        return ended

    @contextmanager
    def during(self, activity: Activity) -> Iterator[None]:
        """Enter ``activity`` for the block, then go back to what was before."""
        before = self.enter(activity)
        try:
            yield
        finally:
            self.enter(before)

    def seconds(self) -> list[float]:
        """Return the seconds of each activity up to now."""
        self.enter(self._activity)
        return list(self._cells)
