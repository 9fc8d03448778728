"""Rows for the engine, read ahead from the data service.

One thread reads; the engine waits only for what is not there yet. A step is
read from the moment its commands arrive, so that with a credit of two steps
the rows of step t+1 load while step t runs.
"""

import threading
import time
from collections.abc import Callable, Collection, Iterator
from dataclasses import dataclass, field

import grpc
from takt.v1 import data_pb2 as pb
from takt.v1 import data_pb2_grpc as pb_grpc

from stage_worker.decode import decode_microbatch, encode_phase
from stage_worker.engine.batch_source import DataError
from stage_worker.engine.commands import Phase, StepSetting
from stage_worker.models.microbatch import Microbatch

MAX_STEPS_HELD = 3
"""Steps whose rows are in memory at once: the present one, and those read ahead."""

_CALL_SECONDS = 60.0
_LIMIT_SECONDS = 120.0
_RETRY_SECONDS = 0.2
_TRANSIENT = (grpc.StatusCode.UNAVAILABLE, grpc.StatusCode.DEADLINE_EXCEEDED, grpc.StatusCode.CANCELLED)

_Key = tuple[Phase, str, int]


@dataclass(slots=True)
class _Step:
    """Rows of one step, as far as they have come."""

    setting: StepSetting
    arrived: dict[int, Microbatch] = field(default_factory=dict)
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
            limit_seconds: how long an unavailable service is asked again.
            clock: monotonic seconds.
        """
        self._stub = pb_grpc.DataServiceStub(channel)
        self._address = address
        self._job = job
        self._dp_rank = dp_rank
        self._columns = tuple(sorted(columns))
        self._limit_seconds = limit_seconds
        self._clock = clock
        self._changed = threading.Condition()
        self._steps: dict[_Key, _Step] = {}
        self._waiting: list[_Key] = []
        self._closed = False
        threading.Thread(target=self._read_ahead, name="batches", daemon=True).start()

    def expect(self, setting: StepSetting) -> None:
        """Begin to read a step, unless that has begun; a step without rows is none."""
        if not any(shape.rows for shape in setting.microbatches):
            return
        with self._changed:
            if _key(setting) not in self._steps:
                self._steps[_key(setting)] = _Step(setting)
                self._waiting.append(_key(setting))
                self._changed.notify_all()

    def get(self, setting: StepSetting, microbatch: int) -> Microbatch:
        """Return one microbatch, waiting for it; see ``BatchSource``."""
        self.expect(setting)
        with self._changed:
            step = self._steps.get(_key(setting))
            if step is None:
                raise DataError(f"{_name(setting)} has no rows at all, microbatch {microbatch} was asked for")
            deadline = self._clock() + self._limit_seconds + _CALL_SECONDS
            while microbatch not in step.arrived and step.error is None:
                if not self._changed.wait(timeout=deadline - self._clock()):
                    raise DataError(f"{self._what(setting, microbatch)} did not come in time")
            if microbatch not in step.arrived:
                raise DataError(f"{self._what(setting, microbatch)} cannot be had: {step.error}")
            return step.arrived[microbatch]

    def release(self, setting: StepSetting) -> None:
        """Forget the rows of a step that is done."""
        with self._changed:
            self._steps.pop(_key(setting), None)
            self._changed.notify_all()

    def close(self) -> None:
        """Stop reading."""
        with self._changed:
            self._closed = True
            self._changed.notify_all()

    def _read_ahead(self) -> None:
        while (step := self._next()) is not None:
            error: str | None
            try:
                error = self._read(step)
            except Exception as unexpected:  # whatever it is, the engine must hear of it rather than wait
                error = f"{type(unexpected).__name__}: {unexpected}"
            with self._changed:
                step.error = error
                self._changed.notify_all()

    def _next(self) -> _Step | None:
        with self._changed:
            while not self._closed:
                held = len(self._steps) - len(self._waiting)
                if self._waiting and held < MAX_STEPS_HELD:
                    return self._steps[self._waiting.pop(0)]
                self._changed.wait()
            return None

    def _read(self, step: _Step) -> str | None:
        """Read a whole step; return why it is not whole, None where it is."""
        deadline = self._clock() + self._limit_seconds
        while True:
            try:
                self._read_once(step)
            except grpc.RpcError as error:
                reason = f"{error.code().name}: {error.details()}"
                if error.code() not in _TRANSIENT:
                    return reason
                if self._clock() >= deadline:
                    return f"no answer for {self._limit_seconds:g} s, the last one was {reason}"
            else:
                shapes = step.setting.microbatches
                missing = [m for m, shape in enumerate(shapes) if shape.rows and m not in step.arrived]
                return f"the service left out microbatches {missing}" if missing else None
            with self._changed:
                if self._closed or self._changed.wait_for(lambda: self._closed, timeout=_RETRY_SECONDS):
                    return "reading was stopped"

    def _read_once(self, step: _Step) -> None:
        setting = step.setting
        request = pb.ReadStepRequest(
            job=self._job,
            phase=encode_phase(setting.phase),
            split=setting.split,
            step=setting.step,
            dp_rank=self._dp_rank,
            columns=self._columns,
        )
        for message in self._stub.ReadStep(request, timeout=_CALL_SECONDS):
            arrived = dict(self._decoded(message, setting))
            with self._changed:
                step.arrived.update(arrived)
                self._changed.notify_all()

    def _decoded(self, message: pb.ReadStepResponse, setting: StepSetting) -> Iterator[tuple[int, Microbatch]]:
        for microbatch in message.microbatches:
            index = microbatch.microbatch
            if index >= len(setting.microbatches):
                raise DataError(f"microbatch {index} came, the step has {len(setting.microbatches)}")
            if setting.microbatches[index].rows:  # one without rows keeps its place, but nobody asks for it
                yield index, decode_microbatch(microbatch, announced=setting.microbatches[index])

    def _what(self, setting: StepSetting, microbatch: int) -> str:
        columns = ", ".join(self._columns)
        return (
            f"microbatch {microbatch} of {_name(setting)} ({columns} of dp rank {self._dp_rank}, "
            f"from the data service at {self._address})"
        )


def _key(setting: StepSetting) -> _Key:
    return setting.phase, setting.split, setting.step


def _name(setting: StepSetting) -> str:
    return f"{setting.split} step {setting.step}"
