"""What an executor tells its agent without a word: figures in memory that both have mapped.

The executor writes, the agent reads, neither waits for the other, and the
figures outlive the executor. Every cell is a float64; every time is
``time.monotonic()`` seconds, one clock for all processes of a machine.

Note [Torn reads]: the cells of the ledger and the present activity change
together. The writer makes ``VERSION`` odd before it touches them and even
after; a reader that sees an odd or a changed version reads again.
"""

import enum
import mmap
import os
import tempfile
import time
from collections.abc import Callable, Iterable, MutableSequence
from dataclasses import dataclass
from typing import overload

from stage_worker.engine.commands import Op
from stage_worker.engine.ledger import Activity

OPS = tuple(Op)
_READ_ATTEMPTS = 100  # a writer that died between odd and even must not hang its reader
_READ_PAUSE_SECONDS = 0.0001


class _Cell(enum.IntEnum):
    """Places of the single figures."""

    VERSION = 0
    PULSE = 1
    STARTED = 2
    ACTIVITY = 3
    SINCE = 4
    SEQ = 5
    PROGRESSED = 6
    LOADED = 7
    IN_FLIGHT = 8
    PEAK_BYTES = 9
    SENT_BYTES = 10
    RECEIVED_BYTES = 11


_LEDGER = len(_Cell)
_COMMANDS = _LEDGER + len(Activity)
_NUM_CELLS = _COMMANDS + len(OPS)
_SIZE_BYTES = _NUM_CELLS * 8


@dataclass(frozen=True, slots=True)
class Snapshot:
    """The figures of one executor at one moment. Times are monotonic seconds."""

    pulse: float
    """When the executor last showed that its interpreter runs; 0 before the first time."""
    started: float
    """When its time began to be accounted for; 0 before."""
    activity: Activity
    since: float
    """When ``activity`` began."""
    ended_seconds: tuple[float, ...]
    """Seconds of each activity, without the running one."""
    seq: int
    """Sequence number of the last finished command; 0 before the first."""
    progressed: float
    """When that command was finished; 0 before the first."""
    loaded: bool
    """Whether the executor has its stage loaded and has joined its groups."""
    in_flight: int
    """Microbatches whose forward has begun and whose backward has not ended."""
    peak_bytes: int
    sent_bytes: int
    received_bytes: int
    commands: tuple[int, ...]
    """Finished commands of each op, in the order of ``OPS``."""

    def seconds(self, now: float) -> tuple[float, ...]:
        """Return the seconds of each activity, the running one up to ``now``."""
        seconds = list(self.ended_seconds)
        if self.started:
            seconds[self.activity] += max(0.0, now - self.since)
        return tuple(seconds)


class Record:
    """The shared memory: a file without a name, which both processes map by its descriptor."""

    def __init__(self, descriptor: int) -> None:
        """Map the file behind ``descriptor``, and own the descriptor from now on."""
        self._descriptor = descriptor
        self.cells: memoryview[float] = memoryview(mmap.mmap(descriptor, _SIZE_BYTES)).cast("d")

    @classmethod
    def create(cls) -> "Record":
        """Make a record of zeros."""
        with tempfile.TemporaryFile(prefix="takt-record-") as file:
            file.truncate(_SIZE_BYTES)
            return cls(os.dup(file.fileno()))

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
            version = self._cells[_Cell.VERSION]
            snapshot = self._read_once()
            if version % 2 == 0 and version == self._cells[_Cell.VERSION]:
                break
            time.sleep(_READ_PAUSE_SECONDS)
        return snapshot

    def _read_once(self) -> Snapshot:
        cells = self._cells
        return Snapshot(
            pulse=cells[_Cell.PULSE],
            started=cells[_Cell.STARTED],
            activity=Activity(int(cells[_Cell.ACTIVITY])),
            since=cells[_Cell.SINCE],
            ended_seconds=tuple(cells[_LEDGER:_COMMANDS]),
            seq=int(cells[_Cell.SEQ]),
            progressed=cells[_Cell.PROGRESSED],
            loaded=bool(cells[_Cell.LOADED]),
            in_flight=int(cells[_Cell.IN_FLIGHT]),
            peak_bytes=int(cells[_Cell.PEAK_BYTES]),
            sent_bytes=int(cells[_Cell.SENT_BYTES]),
            received_bytes=int(cells[_Cell.RECEIVED_BYTES]),
            commands=tuple(int(count) for count in cells[_COMMANDS:_NUM_CELLS]),
        )


class RecordWriter:
    """The executor's face of a record.

    ``beat`` may be called from any thread, everything else from the engine thread.
    """

    def __init__(self, record: Record, *, clock: Callable[[], float] = time.monotonic) -> None:
        self._cells = record.cells
        self._clock = clock

    def beat(self, *, peak_bytes: int) -> None:
        """Show that the interpreter runs, and the most memory that was held so far."""
        self._cells[_Cell.PEAK_BYTES] = peak_bytes
        self._cells[_Cell.PULSE] = self._clock()

    def start(self) -> MutableSequence[float]:
        """Begin to account for time; return the cells for the ledger.

        The ledger also needs ``switch`` as its ``on_switch``.
        """
        now = self._clock()
        self._cells[_Cell.ACTIVITY], self._cells[_Cell.SINCE] = Activity.OTHER, now
        self._cells[_Cell.STARTED] = now
        return _LedgerCells(self._cells)

    def switch(self, activity: Activity, since: float) -> None:
        """Note what the engine does now; ends what a write to the ledger's cells began."""
        cells = self._cells
        cells[_Cell.ACTIVITY], cells[_Cell.SINCE] = activity, since
        cells[_Cell.VERSION] += 1

    def set_loaded(self) -> None:
        """Note that the stage is loaded and the groups are joined."""
        self._cells[_Cell.LOADED] = 1.0

    def finish_command(self, op: Op, seq: int) -> None:
        """Count one finished command."""
        self._cells[_COMMANDS + OPS.index(op)] += 1
        self._cells[_Cell.SEQ], self._cells[_Cell.PROGRESSED] = seq, self._clock()

    def set_in_flight(self, count: int) -> None:
        """Note how many microbatches are in flight."""
        self._cells[_Cell.IN_FLIGHT] = count

    def set_transferred(self, *, sent_bytes: int, received_bytes: int) -> None:
        """Note the bytes moved so far."""
        self._cells[_Cell.SENT_BYTES], self._cells[_Cell.RECEIVED_BYTES] = sent_bytes, received_bytes


class _LedgerCells(MutableSequence[float]):
    """The ledger's part of a record; writing one begins a change that ``switch`` ends."""

    def __init__(self, cells: "memoryview[float]") -> None:
        self._cells = cells

    @overload
    def __getitem__(self, index: int) -> float: ...
    @overload
    def __getitem__(self, index: slice) -> MutableSequence[float]: ...
    def __getitem__(self, index: int | slice) -> float | MutableSequence[float]:
        if isinstance(index, slice):
            return list(self._cells[_LEDGER:_COMMANDS])[index]
        if not 0 <= index < len(Activity):
            raise IndexError(index)
        return self._cells[_LEDGER + index]

    @overload
    def __setitem__(self, index: int, value: float) -> None: ...
    @overload
    def __setitem__(self, index: slice, value: Iterable[float]) -> None: ...
    def __setitem__(self, index: int | slice, value: float | Iterable[float]) -> None:
        if not isinstance(index, int) or not isinstance(value, float) or not 0 <= index < len(Activity):
            raise TypeError("a ledger writes one cell at a time")
        self._cells[_Cell.VERSION] += 1
        self._cells[_LEDGER + index] = value

    def __delitem__(self, index: int | slice) -> None:
        raise TypeError("a ledger has a fixed number of cells")

    def insert(self, index: int, value: float) -> None:
        """Refuse: the layout is fixed."""
        raise TypeError("a ledger has a fixed number of cells")

    def __len__(self) -> int:
        return len(Activity)
