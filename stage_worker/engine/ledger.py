"""Where a worker's time goes: every instant is put down to exactly one account.

The engine enters activities; whoever owns the cells (a dict in tests, memory
shared with the agent in an executor) can read them at any time, also after the
executor's death. A cell holds the seconds of one account that have ended.
"""

import enum
import time
from collections import defaultdict, deque
from collections.abc import Callable, Iterator, Mapping, MutableMapping, Sequence
from contextlib import contextmanager
from typing import NamedTuple


class Activity(enum.IntEnum):
    """What a worker does; the order is the order of a record's cells."""

    FORWARD = 0
    BACKWARD = 1
    INPUT_GRADIENT = 2
    WEIGHT_GRADIENT = 3
    STEP = 4
    WAIT_ACTIVATION = 5
    WAIT_GRADIENT = 6
    WAIT_SEND = 7
    WAIT_DATA = 8
    WAIT_COMMAND = 9
    REDUCE = 10
    SAVE = 11
    LOAD = 12
    OTHER = 13

    @property
    def is_compute(self) -> bool:
        """Whether the worker itself computes; only then can it be stuck."""
        return self in BUSY_OPS


class Part(enum.Enum):
    """What a stage computes."""

    EMBEDDINGS = enum.auto()
    LAYERS = enum.auto()
    HEAD = enum.auto()


Account = tuple[Activity, int | None]
"""What time is put down to: an activity, and the stage it is for; None where it is for the whole worker."""

About = tuple[int, int]
"""Global stage and microbatch of an action."""


MAX_SPANS = 2**16
"""Spans that are kept until they are taken; some megabytes."""


class Span(NamedTuple):
    """One activity from when it began to when another one did, in the clock's seconds."""

    activity: Activity
    about: About | None
    """The action that was done, or that was waited for; None for what concerns the whole worker."""
    start: float
    end: float
    embeddings: float = 0.0
    """Seconds of it that went into the embeddings; the kernels that were launched where a device works behind."""
    layers: float = 0.0
    """The same of the layers."""
    head: float = 0.0
    """The same of the head, the loss included."""


BUSY_OPS = {
    Activity.FORWARD: "F",
    Activity.BACKWARD: "B",
    Activity.INPUT_GRADIENT: "I",
    Activity.WEIGHT_GRADIENT: "W",
    Activity.STEP: "step",
}
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
    """Puts time down to accounts. One thread writes; busy plus idle is all time."""

    def __init__(
        self,
        *,
        cells: MutableMapping[Account, float] | None = None,
        on_switch: Callable[[Account, float], None] | None = None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        """Start in ``OTHER``.

        Args:
            cells: seconds by account, 0 for one that had none; a new dict where absent.
            on_switch: told of each new account and the time it began, in the clock's seconds.
            clock: seconds.
        """
        self._cells = cells if cells is not None else defaultdict(float)
        self._on_switch = on_switch
        self._clock = clock
        self._account: Account = (Activity.OTHER, None)
        self._about: About | None = None
        self._since = clock()
        self._part: Part | None = None
        self._part_since = self._since
        self._part_seconds = dict.fromkeys(Part, 0.0)
        self._spans: deque[Span] = deque(maxlen=MAX_SPANS)

    @contextmanager
    def during(self, activity: Activity, *, about: About | None = None) -> Iterator[None]:
        """Enter ``activity`` for the block, then go back to what was before.

        Args:
            activity: computing is put down to the stage that it is about, everything else to the whole worker.
            about: global stage and microbatch.
        """
        before = self._account, self._about
        self.enter(activity, about=about)
        try:
            yield
        finally:
            self._switch(*before)

    def enter(self, activity: Activity, *, about: About | None = None) -> None:
        """End what is done now, begin ``activity``, which lasts until the next one; see ``during``."""
        self._switch((activity, about[0] if about is not None and activity.is_compute else None), about)

    def enter_part(self, part: Part | None) -> None:
        """Say which part of the model the activity goes on with; None for none of them, as every activity begins."""
        self._end_part(self._clock())
        self._part = part

    def now(self) -> float:
        """Return the clock's seconds."""
        return self._clock()

    def seconds(self) -> dict[Account, float]:
        """Return the seconds of each account up to now; one that had none may be missing."""
        self._switch(self._account, self._about)
        return dict(self._cells)

    def take_spans(self) -> list[Span]:
        """Return what was done since the last call, up to the last change of activity; it is forgotten here.

        Of more than ``MAX_SPANS`` the first ones are lost.
        """
        spans = list(self._spans)
        self._spans.clear()
        return spans

    def _switch(self, account: Account, about: About | None) -> None:
        now = self._clock()
        self._end_part(now)
        self._part = None
        self._cells[self._account] += now - self._since
        self._spans.append(Span(self._account[0], self._about, self._since, now, *self._part_seconds.values()))
        self._part_seconds = dict.fromkeys(Part, 0.0)
        self._account, self._about, self._since = account, about, now
        if self._on_switch is not None:
            self._on_switch(account, now)

    def _end_part(self, now: float) -> None:
        if self._part is not None:
            self._part_seconds[self._part] += now - self._part_since
        self._part_since = now


def busy_seconds(seconds: Mapping[Account, float], *, stages: Sequence[int]) -> dict[tuple[int, str], float]:
    """Return the computing seconds of each stage and op.

    Args:
        seconds: by account.
        stages: the worker's, ascending; the first one also gets what is for the whole worker, such as ``step``.
    """
    busy = {
        (stage, op): seconds.get((activity, stage), 0.0)
        for stage in stages
        for activity, op in BUSY_OPS.items()
        if activity is not Activity.STEP
    }
    for activity, op in BUSY_OPS.items():
        key = (stages[0], op)
        busy[key] = busy.get(key, 0.0) + seconds.get((activity, None), 0.0)
    return busy


def idle_seconds(seconds: Mapping[Account, float]) -> dict[str, float]:
    """Return the other seconds by the metric label ``reason``, of all reasons."""
    idle = dict.fromkeys(IDLE_REASONS.values(), 0.0)
    for (activity, _), passed in seconds.items():
        if activity in IDLE_REASONS:
            idle[IDLE_REASONS[activity]] += passed
    return idle
