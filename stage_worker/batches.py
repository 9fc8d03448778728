"""Rows for the engine, read ahead from the data service.

One thread reads; the engine waits only for what is not there yet. Which step is read when, ``ReadAhead`` says.
"""

import threading
import time
from collections.abc import Callable, Collection, Iterator, Mapping
from dataclasses import dataclass, field
from types import MappingProxyType

import grpc
import structlog
from takt.v1 import data_pb2 as pb
from takt.v1 import data_pb2_grpc as pb_grpc

from stage_worker.decode import decode_microbatch, encode_phase
from stage_worker.engine.batch_source import DataError
from stage_worker.engine.commands import Shape, StepSetting
from stage_worker.models.microbatch import Microbatch
from stage_worker.read_ahead import Key, ReadAhead

NUM_STEPS_AHEAD = 4
"""Steps that are read before they are commanded."""
MAX_STEPS_HELD = 8
"""Steps whose rows are in memory at once: the present one, and those read ahead."""

_CALL_SECONDS = 60.0
_LIMIT_SECONDS = 120.0
_RETRY_SECONDS = 0.2
_LATE_SECONDS = 5.0
"""Waiting for so long is told in the log."""
_TRANSIENT = (grpc.StatusCode.UNAVAILABLE, grpc.StatusCode.DEADLINE_EXCEEDED, grpc.StatusCode.CANCELLED)

log = structlog.get_logger()


@dataclass(slots=True)
class _Step:
    """Rows of one step, as far as they have come."""

    arrived: dict[int, Microbatch] = field(default_factory=dict)
    num_microbatches: int = 0
    """That came, those without rows included."""
    is_whole: bool = False
    error: str | None = None


class DataServiceSource:
    """The rows of one replica, by the columns that this worker's stages read.

    ``expect``, ``get`` and ``release`` may be called from different threads.
    """

    def __init__(
        self,
        channel: grpc.Channel,
        *,
        address: str,
        job: str,
        dp_rank: int,
        columns: Collection[str],
        digests: Mapping[str, str] = MappingProxyType({}),
        limit_seconds: float = _LIMIT_SECONDS,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        """Start to read whatever is expected from now on.

        Args:
            channel: to the data service.
            address: where that is, for messages.
            job: job id.
            dp_rank: replica whose rows are wanted.
            columns: names of the columns to ask for.
            digests: digest that the rows of a split must have, by its name; a split without one may have any.
            limit_seconds: how long ``get`` waits; a service that is away is asked again as long as nobody waits.
            clock: monotonic seconds.
        """
        self._stub = pb_grpc.DataServiceStub(channel)
        self._address = address
        self._job = job
        self._dp_rank = dp_rank
        self._columns = tuple(sorted(columns))
        self._digests = digests
        self._limit_seconds = limit_seconds
        self._clock = clock
        self._changed = threading.Condition()
        self._ahead = ReadAhead(num_ahead=NUM_STEPS_AHEAD, most_held=MAX_STEPS_HELD)
        self._steps: dict[Key, _Step] = {}
        self._trouble: str | None = None
        """How the last call broke off; None once rows come again."""
        self._closed = False
        self._reads: list[tuple[float, float]] = []
        threading.Thread(target=self._read_ahead, name="batches", daemon=True).start()

    def expect(self, setting: StepSetting) -> None:
        """Begin to read a step, unless that has begun, and those after it; a step without rows is not read."""
        key = _key(setting)
        with self._changed:
            if not self._ahead.is_expected(key):
                self._ahead.expect(key, has_rows=any(shape.rows for shape in setting.microbatches))
                if self._ahead.is_expected(key):
                    self._steps.setdefault(key, _Step())
                self._changed.notify_all()

    def get(self, setting: StepSetting, microbatch: int) -> Microbatch:
        """Return one microbatch, waiting for it; see ``BatchSource``."""
        self.expect(setting)
        with self._changed:
            step = self._steps.get(_key(setting))
            if step is None:
                raise DataError(f"{_name(setting)} has no rows at all, microbatch {microbatch} was asked for")
            if microbatch not in step.arrived:
                self._wait_for(step, setting, microbatch)
            error = step.error or _mismatch(step, setting, microbatch)
            if error is not None:
                raise DataError(f"{self._what(setting, microbatch)} cannot be had: {error}")
            return step.arrived[microbatch]

    def release(self, setting: StepSetting) -> None:
        """Forget the rows of a step that is done."""
        with self._changed:
            self._steps.pop(_key(setting), None)
            self._ahead.release(_key(setting))
            self._changed.notify_all()

    def close(self) -> None:
        """Stop reading."""
        with self._changed:
            self._closed = True
            self._changed.notify_all()

    def _wait_for(self, step: _Step, setting: StepSetting, microbatch: int) -> None:
        """Wait until a microbatch has come, or cannot come any more."""
        began = self._clock()
        is_late = False
        while not (microbatch in step.arrived or step.is_whole or step.error is not None):
            waited = self._clock() - began
            if waited >= self._limit_seconds:
                step.error = f"no answer for {self._limit_seconds:g} s, {self._state_of_calls()}"
            elif waited >= _LATE_SECONDS and not is_late:
                is_late = True
                log.warning("rows are waited for", rows=self._what(setting, microbatch), reason=self._state_of_calls())
            else:
                end = self._limit_seconds if is_late else min(self._limit_seconds, _LATE_SECONDS)
                self._changed.wait(timeout=end - waited)
        if is_late:
            log.warning("rows are waited for no longer", seconds=round(self._clock() - began, 1), error=step.error)

    def take_reads(self) -> list[tuple[float, float]]:
        """Return when each step that was read since the last call began and ended to be; it is forgotten here."""
        with self._changed:
            reads, self._reads = self._reads, []
            return reads

    def _read_ahead(self) -> None:
        while (key := self._next()) is not None:
            error: str | None
            began = self._clock()
            try:
                error = self._read(key)
            except Exception as unexpected:  # whatever it is, the engine must hear of it rather than wait
                error = f"{type(unexpected).__name__}: {unexpected}"
            with self._changed:
                self._reads.append((began, self._clock()))
                self._end(key, error)
                self._changed.notify_all()

    def _next(self) -> Key | None:
        with self._changed:
            while not self._closed:
                key = self._ahead.begin_next()
                if key is not None:
                    self._steps.setdefault(key, _Step())
                    return key
                self._changed.wait()
            return None

    def _end(self, key: Key, error: str | None) -> None:
        """Note that a step is whole, or why it will not be; what nobody has asked for yet is forgotten then."""
        if error is not None:
            self._ahead.refuse(key)
            if not self._ahead.is_expected(key):
                self._steps.pop(key, None)
        if key in self._steps:
            step = self._steps[key]
            step.is_whole, step.error = error is None, error

    def _read(self, key: Key) -> str | None:
        """Read a whole step, however often it takes; return why it cannot be had, None where it is there."""
        while True:
            try:
                self._read_once(key)
                return None
            except grpc.RpcError as error:
                reason = f"{error.code().name}: {error.details()}"
                if error.code() not in _TRANSIENT:
                    return reason
            with self._changed:
                self._trouble = reason
                if self._changed.wait_for(lambda: self._closed, timeout=_RETRY_SECONDS):
                    return "reading was stopped"

    def _read_once(self, key: Key) -> None:
        phase, split, number = key
        request = pb.ReadStepRequest(
            job=self._job,
            phase=encode_phase(phase),
            split=split,
            step=number,
            dp_rank=self._dp_rank,
            columns=self._columns,
            digest=self._digests.get(split, ""),
        )
        for microbatches in _whole(self._stub.ReadStep(request, timeout=_CALL_SECONDS)):
            # One without rows keeps its place, but nobody asks for it.
            arrived = {each.microbatch: _decoded(each) for each in microbatches if each.row_ids}
            with self._changed:
                self._trouble = None
                step = self._steps.get(key, _Step())  # it may have been released meanwhile
                step.arrived.update(arrived)
                step.num_microbatches = max(step.num_microbatches, *(each.microbatch + 1 for each in microbatches))
                self._changed.notify_all()

    def _state_of_calls(self) -> str:
        return f"the last one was {self._trouble}" if self._trouble else "the call is still open"

    def _what(self, setting: StepSetting, microbatch: int) -> str:
        columns = ", ".join(self._columns)
        return (
            f"microbatch {microbatch} of {_name(setting)} ({columns} of dp rank {self._dp_rank}, "
            f"from the data service at {self._address})"
        )


def _whole(messages: Iterator[pb.ReadStepResponse]) -> Iterator[list[pb.Microbatch]]:
    """Yield the microbatches of each message, those that come in parts once they are whole."""
    begun: pb.Microbatch | None = None
    for message in messages:
        whole = []
        for part in message.microbatches:
            if begun is None:
                begun = part
            else:
                begun.columns.extend(part.columns)
            if not part.continues:
                whole.append(begun)
                begun = None
        if whole:
            yield whole


def _decoded(message: pb.Microbatch) -> Microbatch:
    widths = [column.shape[1] for column in message.columns if column.name == "attention_mask"]
    return decode_microbatch(message, announced=Shape(len(message.row_ids), *(widths or [0])))


def _mismatch(step: _Step, setting: StepSetting, microbatch: int) -> str | None:
    """Return in what the rows that came differ from those that the commands announced; None where in nothing."""
    announced = setting.microbatches
    if step.is_whole:
        missing = [m for m, shape in enumerate(announced) if (shape.rows or m == microbatch) and m not in step.arrived]
        if missing:
            return f"the service left out microbatches {missing}"
        if step.num_microbatches != len(announced):
            return f"{step.num_microbatches} microbatches came, the step has {len(announced)}"
    rows, width = step.arrived[microbatch].attention_mask_BL.shape
    if rows != announced[microbatch].rows:
        return f"it has {rows} rows, not {announced[microbatch].rows}"
    if width != announced[microbatch].width:
        return f"it is {width} wide, not {announced[microbatch].width}"
    return None


def _key(setting: StepSetting) -> Key:
    return setting.phase, setting.split, setting.step


def _name(setting: StepSetting) -> str:
    return f"{setting.split} step {setting.step}"
