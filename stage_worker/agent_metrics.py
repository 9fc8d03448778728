"""Prometheus' view of the executor at work, read from its record at every scrape."""

import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass

from prometheus_client import Metric
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily
from prometheus_client.registry import Collector

from stage_worker.agent_events import Work
from stage_worker.engine.ledger import busy_seconds, idle_seconds
from stage_worker.record import OPS, RecordReader


@dataclass(frozen=True, slots=True)
class Exposed:
    """An executor whose figures are shown."""

    work: Work
    record: RecordReader


class ExecutorCollector(Collector):
    """Shows the figures of one run, as long as it runs here."""

    def __init__(
        self,
        current: Callable[[], Exposed | None],
        *,
        clock: Callable[[], float] = time.monotonic,
        wall_clock: Callable[[], float] = time.time,
    ) -> None:
        """Show what ``current`` returns; it is called from the thread that serves the scrape."""
        self._current = current
        self._clock = clock
        self._wall_clock = wall_clock

    def collect(self) -> Iterator[Metric]:
        """Return all series of the present run."""
        exposed = self._current()
        if exposed is None:
            return
        work = exposed.work
        snapshot = exposed.record.read()
        now = self._clock()
        seconds = snapshot.seconds(now)
        run, worker, dp_rank = work.job, str(work.worker), str(work.dp_rank)
        of_stage = ["run", "stage", "worker", "dp_rank"]

        busy = CounterMetricFamily("takt_stage_busy_seconds", "Time spent computing.", labels=[*of_stage, "op"])
        for (stage, busy_op), passed in busy_seconds(seconds, stages=work.stages).items():
            busy.add_metric([run, str(stage), worker, dp_rank, busy_op], passed)
        yield busy

        idle = CounterMetricFamily(
            "takt_worker_idle_seconds", "Time spent not computing.", labels=["run", "worker", "dp_rank", "reason"]
        )
        for reason, passed in idle_seconds(seconds).items():
            idle.add_metric([run, worker, dp_rank, reason], passed)
        yield idle

        in_flight = GaugeMetricFamily(
            "takt_stage_in_flight_microbatches", "Microbatches between forward and backward.", labels=of_stage
        )
        for stage in work.stages:
            in_flight.add_metric([run, str(stage), worker, dp_rank], snapshot.in_flight.get(stage, 0))
        yield in_flight
        memory = GaugeMetricFamily(
            "takt_stage_memory_peak_bytes",
            "Most memory held so far by the worker, at the first of its stages.",
            labels=of_stage,
        )
        memory.add_metric([run, str(work.stages[0]), worker, dp_rank], snapshot.peak_bytes)
        yield memory

        of_worker = ["run", "worker", "dp_rank"]
        transferred = CounterMetricFamily(
            "takt_transfer_bytes", "Bytes moved between stages and replicas.", labels=[*of_worker, "direction"]
        )
        transferred.add_metric([run, worker, dp_rank, "sent"], snapshot.sent_bytes)
        transferred.add_metric([run, worker, dp_rank, "received"], snapshot.received_bytes)
        yield transferred
        commands = CounterMetricFamily("takt_commands", "Commands obeyed.", labels=[*of_worker, "op"])
        for op, count in zip(OPS, snapshot.commands, strict=True):
            commands.add_metric([run, worker, dp_rank, op.name.lower()], count)
        yield commands
        if snapshot.progressed:
            progress = GaugeMetricFamily(
                "takt_worker_last_progress_timestamp_seconds", "When a command was last finished.", labels=of_worker
            )
            progress.add_metric([run, worker, dp_rank], self._wall_clock() - (now - snapshot.progressed))
            yield progress
