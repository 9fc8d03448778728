"""What an executor tells its agent without a word: figures in memory that both have mapped.

The executor writes, the agent reads, neither waits for the other, and the
figures outlive the executor. Every cell is a float64; every time is
``time.monotonic()`` seconds, one clock for all processes of a machine.

The layout has a fixed size, because a record is made before its job is known:
there is room for ``MAX_STAGES`` stages, and the executor writes down which ones
it holds. The ledger has one row of cells for the whole worker, one a stage, and
a column for each activity.

Note [Torn reads]: the cells of the ledger and the present account change
together. The writer makes ``VERSION`` odd before it touches them and even
after; a reader that sees an odd or a changed version reads again.
"""

import enum
import mmap
import os
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping, MutableMapping, Sequence
from dataclasses import dataclass

from stage_worker.engine.commands import Op
from stage_worker.engine.ledger import Account, Activity

MAX_STAGES = 64
"""Most stages that one worker can hold."""

OPS = tuple(Op)
_READ_ATTEMPTS = 100  # a writer that died between odd and even must not hang its reader
_READ_PAUSE_SECONDS = 0.0001


class _Cell(enum.IntEnum):
    """Places of the single figures."""

    VERSION = 0
    PULSE = 1
    STARTED = 2
    ACTIVITY = 3
    ROW = 4
    SINCE = 5
    SEQ = 6
    PROGRESSED = 7
    LOADED = 8
    PEAK_BYTES = 9
    SENT_BYTES = 10
    RECEIVED_BYTES = 11
    NUM_STAGES = 12


_COMMANDS = len(_Cell)
_STAGES = _COMMANDS + len(OPS)
_IN_FLIGHT = _STAGES + MAX_STAGES
_LEDGER = _IN_FLIGHT + MAX_STAGES
_SIZE_BYTES = (_LEDGER + (1 + MAX_STAGES) * len(Activity)) * 8


@dataclass(frozen=True, slots=True)
class Snapshot:
    """The figures of one executor at one moment. Times are monotonic seconds."""

    pulse: float
    """When the executor last showed that its interpreter runs; 0 before the first time."""
    started: float
    """When its time began to be accounted for; 0 before."""
    account: Account
    """What the engine does now."""
    since: float
    """When that began."""
    ended_seconds: Mapping[Account, float]
    """Seconds of each account, without the running one."""
    seq: int
    """Sequence number of the last finished command; 0 before the first."""
    progressed: float
    """When that command was finished; 0 before the first."""
    loaded: bool
    """Whether the executor has its stage loaded and has joined its groups."""
    in_flight: Mapping[int, int]
    """Microbatches by stage whose forward has begun and whose backward (weight gradient, where split) has not ended."""
    peak_bytes: int
    sent_bytes: int
    received_bytes: int
    commands: tuple[int, ...]
    """Finished commands of each op, in the order of ``OPS``."""

    def seconds(self, now: float) -> dict[Account, float]:
        """Return the seconds of each account, the running one up to ``now``."""
        seconds = dict(self.ended_seconds)
        if self.started:
            seconds[self.account] += max(0.0, now - self.since)
        return seconds


class Record:
    """The shared memory: a file without a name, which both processes map by its descriptor."""

    def __init__(self, descriptor: int) -> None:
        """Map the file behind ``descriptor``, and own the descriptor from now on."""
        self._descriptor = descriptor
        self.cells: memoryview[float] = memoryview(mmap.mmap(descriptor, _SIZE_BYTES)).cast("d")

    @classmethod
    def create(cls) -> "Record":
        """Make a record of zeros, but for the activity: who still imports computes nothing yet."""
        with tempfile.TemporaryFile(prefix="takt-record-") as file:
            file.truncate(_SIZE_BYTES)
            record = cls(os.dup(file.fileno()))
        record.cells[_Cell.ACTIVITY] = Activity.OTHER
        return record

    @property
    def descriptor(self) -> int:
        """The file descriptor, for a child process to inherit."""
        return self._descriptor

    def close_descriptor(self) -> None:
        """Close the descriptor; the mapping stays until nobody refers to it."""
        os.close(self._descriptor)


class RecordReader:
    """The agent's face of a record."""

    def __init__(self, record: Record) -> None:
        self._cells = record.cells

    def read(self) -> Snapshot:
        """Return the figures of this moment."""
        for _ in range(_READ_ATTEMPTS):
            copied = memoryview(self._cells.tobytes()).cast("d")
            version = copied[_Cell.VERSION]
            if version % 2 == 0 and version == self._cells[_Cell.VERSION]:
                break
            time.sleep(_READ_PAUSE_SECONDS)
        return _snapshot(copied)


def _snapshot(cells: "memoryview[float]") -> Snapshot:
    ledger = _LedgerCells(cells)
    stages = ledger.stages
    return Snapshot(
        pulse=cells[_Cell.PULSE],
        started=cells[_Cell.STARTED],
        account=(Activity(int(cells[_Cell.ACTIVITY])), (None, *stages)[int(cells[_Cell.ROW])]),
        since=cells[_Cell.SINCE],
        ended_seconds=dict(ledger),
        seq=int(cells[_Cell.SEQ]),
        progressed=cells[_Cell.PROGRESSED],
        loaded=bool(cells[_Cell.LOADED]),
        in_flight={stage: int(cells[_IN_FLIGHT + place]) for place, stage in enumerate(stages)},
        peak_bytes=int(cells[_Cell.PEAK_BYTES]),
        sent_bytes=int(cells[_Cell.SENT_BYTES]),
        received_bytes=int(cells[_Cell.RECEIVED_BYTES]),
        commands=tuple(int(count) for count in cells[_COMMANDS:_STAGES]),
    )


class RecordWriter:
    """The executor's face of a record.

    ``beat`` may be called from any thread, everything else from the engine thread.
    """

    def __init__(self, record: Record, *, clock: Callable[[], float] = time.monotonic) -> None:
        self._cells = record.cells
        self._ledger = _LedgerCells(record.cells)
        self._clock = clock

    def beat(self, *, peak_bytes: int) -> None:
        """Show that the interpreter runs, and the most memory that was held so far."""
        self._cells[_Cell.PEAK_BYTES] = peak_bytes
        self._cells[_Cell.PULSE] = self._clock()

    def start(self, *, stages: Sequence[int]) -> MutableMapping[Account, float]:
        """Begin to account for time; return the cells for the ledger, which also needs ``switch`` as its ``on_switch``.

        Args:
            stages: global stages that the executor holds.

        Raises:
            ValueError: they are more than ``MAX_STAGES``.
        """
        if len(stages) > MAX_STAGES:
            raise ValueError(
                f"the worker is to hold {len(stages)} stages, a record has room for {MAX_STAGES}; "
                "use more workers or fewer chunks"
            )
        now = self._clock()
        cells = self._cells
        cells[_Cell.VERSION] += 1
        for place, stage in enumerate(stages):
            cells[_STAGES + place] = stage
        cells[_Cell.NUM_STAGES] = len(stages)
        cells[_Cell.ACTIVITY], cells[_Cell.ROW], cells[_Cell.SINCE] = Activity.OTHER, 0, now
        cells[_Cell.STARTED] = now
        cells[_Cell.VERSION] += 1
        self._ledger = _LedgerCells(cells)
        return self._ledger

    def switch(self, account: Account, since: float) -> None:
        """Note what the engine does now; ends what a write to the ledger's cells began."""
        activity, stage = account
        cells = self._cells
        cells[_Cell.ACTIVITY], cells[_Cell.ROW], cells[_Cell.SINCE] = activity, self._ledger.row(stage), since
        cells[_Cell.VERSION] += 1

    def set_loaded(self) -> None:
        """Note that the stage is loaded and the groups are joined."""
        self._cells[_Cell.LOADED] = 1.0

    def finish_command(self, op: Op, seq: int) -> None:
        """Count one finished command."""
        self._cells[_COMMANDS + OPS.index(op)] += 1
        self._cells[_Cell.SEQ], self._cells[_Cell.PROGRESSED] = seq, self._clock()

    def set_in_flight(self, by_stage: Mapping[int, int]) -> None:
        """Note how many microbatches are in flight on each stage; after ``start``."""
        for stage, count in by_stage.items():
            self._cells[_IN_FLIGHT + self._ledger.row(stage) - 1] = count

    def set_transferred(self, *, sent_bytes: int, received_bytes: int) -> None:
        """Note the bytes moved so far."""
        self._cells[_Cell.SENT_BYTES], self._cells[_Cell.RECEIVED_BYTES] = sent_bytes, received_bytes


class _LedgerCells(MutableMapping[Account, float]):
    """The ledger's part of a record; writing one cell begins a change that ``switch`` ends."""

    def __init__(self, cells: "memoryview[float]") -> None:
        self._cells = cells
        num_stages = int(cells[_Cell.NUM_STAGES])
        self.stages = tuple(int(stage) for stage in cells[_STAGES : _STAGES + num_stages])
        self._rows: dict[int | None, int] = {None: 0, **{stage: row for row, stage in enumerate(self.stages, start=1)}}

    def row(self, stage: int | None) -> int:
        """Return the row of one stage, or of the whole worker."""
        return self._rows[stage]

    def __getitem__(self, account: Account) -> float:
        return self._cells[self._place(account)]

    def __setitem__(self, account: Account, seconds: float) -> None:
        place = self._place(account)
        self._cells[_Cell.VERSION] += 1
        self._cells[place] = seconds

    def __delitem__(self, account: Account) -> None:
        raise TypeError("a record has a fixed number of cells")

    def __iter__(self) -> Iterator[Account]:
        return ((activity, stage) for stage in self._rows for activity in Activity)

    def __len__(self) -> int:
        return len(self._rows) * len(Activity)

    def _place(self, account: Account) -> int:
        activity, stage = account
        return _LEDGER + self._rows[stage] * len(Activity) + activity
