"""What the data service tells Prometheus; no label names a run, so no series outlives one."""

import enum
import time
from collections.abc import Iterator
from contextlib import contextmanager

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, Summary

BUILD_BUCKETS = (0.0001, 0.0003, 0.001, 0.003, 0.01, 0.03, 0.1, 0.3, 1.0)
"""Seconds; a microbatch of usual size takes well under a millisecond."""


class ReadState(enum.StrEnum):
    """How far a read has come that has not ended; the value is the metric label ``state``."""

    QUEUED = enum.auto()
    """None of its rows is ready: it waits for its split, its step's grouping, a thread."""
    SENDING = enum.auto()


class DataMetrics:
    """Counts microbatches and reads, and the time that they take."""

    def __init__(self, registry: CollectorRegistry) -> None:
        self._batches = Counter("takt_data_batches", "Microbatches that were built.", registry=registry)
        self._build = Histogram(
            "takt_data_build_seconds", "Time to build one microbatch.", buckets=BUILD_BUCKETS, registry=registry
        )
        self._reads = Gauge("takt_data_reads", "Reads of a step that have not ended.", ["state"], registry=registry)
        self._queue = Summary(
            "takt_data_queue_seconds", "Time until the first rows of a read are ready.", ["dp_rank"], registry=registry
        )
        self._send = Counter(
            "takt_data_send_seconds", "Time until readers took rows that were ready.", ["dp_rank"], registry=registry
        )
        for state in ReadState:
            self._reads.labels(state=state)

    def built(self, *, seconds: float) -> None:
        """Count one microbatch; from any thread."""
        self._batches.inc()
        self._build.observe(seconds)

    @contextmanager
    def reading(self) -> Iterator["Reading"]:
        """Count a read for the block."""
        reading = Reading(self._reads, self._queue, self._send)
        try:
            yield reading
        finally:
            reading.end()


class Reading:
    """One read; it names its replica only once that is known to be one of the job's."""

    def __init__(self, reads: Gauge, queue: Summary, send: Counter) -> None:
        self._reads, self._queue, self._send = reads, queue, send
        self._state = ReadState.QUEUED
        self._began = time.perf_counter()
        self._reads.labels(state=self._state).inc()

    @contextmanager
    def sending(self, dp_rank: int) -> Iterator[None]:
        """Count the time that the block takes to hand rows to the reader."""
        began = time.perf_counter()
        if self._state is ReadState.QUEUED:
            self._queue.labels(dp_rank=str(dp_rank)).observe(began - self._began)
            self.end()
            self._state = ReadState.SENDING
            self._reads.labels(state=self._state).inc()
        try:
            yield
        finally:
            self._send.labels(dp_rank=str(dp_rank)).inc(time.perf_counter() - began)

    def end(self) -> None:
        """Leave the present state."""
        self._reads.labels(state=self._state).dec()
