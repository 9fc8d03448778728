"""What Prometheus sees of an executor."""

import pytest
from prometheus_client import CollectorRegistry, generate_latest

from stage_worker.agent_events import Work
from stage_worker.agent_metrics import ExecutorCollector, Exposed
from stage_worker.engine.commands import Op
from stage_worker.engine.ledger import Activity, Ledger
from stage_worker.record import Record, RecordReader, RecordWriter

WORK = Work(
    job="sst2",
    attempt=1,
    worker=3,
    dp_rank=1,
    stages=(1, 6),
    lease_seconds=10.0,
    step_timeout_seconds=60.0,
    assignment="{}",
)
RUN = {"run": "sst2", "worker": "3", "dp_rank": "1"}
FIRST, SECOND = ({**RUN, "stage": stage} for stage in ("1", "6"))
BUSY = "takt_stage_busy_seconds_total"


class Scene:
    """An executor's record, a clock, and a registry that shows it."""

    def __init__(self) -> None:
        self.now = 1000.0
        record = Record.create()
        self.writer = RecordWriter(record, clock=lambda: self.now)
        self.exposed: Exposed | None = Exposed(WORK, RecordReader(record))
        self.registry = CollectorRegistry()
        self.registry.register(
            ExecutorCollector(lambda: self.exposed, clock=lambda: self.now, wall_clock=lambda: 5000.0)
        )

    def value(self, name: str, **labels: str) -> float | None:
        return self.registry.get_sample_value(name, labels)


@pytest.fixture
def scene() -> Scene:
    return Scene()


def test_metrics_busy_and_idle_add_up_to_the_elapsed_time_at_any_moment(scene: Scene) -> None:
    ledger = Ledger(
        cells=scene.writer.start(stages=WORK.stages), on_switch=scene.writer.switch, clock=lambda: scene.now
    )
    for activity in Activity:
        ledger.enter(activity)
        scene.now += 1.0 + activity
    ledger.enter(Activity.FORWARD, about=(6, 0))
    scene.now += 0.25  # the forward that runs counts as far as it has come
    samples = [sample for metric in scene.registry.collect() for sample in metric.samples]
    busy = sum(s.value for s in samples if s.name == BUSY)
    idle = sum(s.value for s in samples if s.name == "takt_worker_idle_seconds_total")
    assert busy + idle == pytest.approx(scene.now - 1000.0)
    assert scene.value(BUSY, op="F", **SECOND) == pytest.approx(0.25)
    other = scene.value("takt_worker_idle_seconds_total", reason="other", **RUN)
    assert other == pytest.approx(2.0 + Activity.LOAD + Activity.OTHER)


def test_metrics_busy_seconds_are_kept_by_stage_and_op(scene: Scene) -> None:
    ledger = Ledger(
        cells=scene.writer.start(stages=WORK.stages), on_switch=scene.writer.switch, clock=lambda: scene.now
    )
    took = {
        (Activity.FORWARD, 1): 1.0,
        (Activity.BACKWARD, 1): 2.0,
        (Activity.FORWARD, 6): 4.0,
        (Activity.INPUT_GRADIENT, 6): 8.0,
        (Activity.WEIGHT_GRADIENT, 6): 16.0,
        (Activity.STEP, None): 32.0,
    }
    for (activity, stage), seconds in took.items():
        with ledger.during(activity, about=None if stage is None else (stage, 0)):
            scene.now += seconds
    assert [scene.value(BUSY, op=op, **FIRST) for op in ("F", "B", "I", "W", "step")] == [1.0, 2.0, 0.0, 0.0, 32.0]
    assert [scene.value(BUSY, op=op, **SECOND) for op in ("F", "B", "I", "W", "step")] == [4.0, 0.0, 8.0, 16.0, None]


def test_metrics_idle_reasons_are_all_there_from_the_start(scene: Scene) -> None:
    reasons = {
        sample.labels["reason"]
        for metric in scene.registry.collect()
        for sample in metric.samples
        if sample.name == "takt_worker_idle_seconds_total"
    }
    assert reasons == {"activation", "gradient", "send", "data", "command", "reduce", "checkpoint", "other"}


def test_metrics_figures_of_the_record_are_shown_under_their_names(scene: Scene) -> None:
    scene.writer.start(stages=WORK.stages)
    scene.writer.set_in_flight({1: 3, 6: 2})
    scene.writer.set_transferred(sent_bytes=10, received_bytes=20)
    scene.writer.beat(peak_bytes=4096)
    scene.writer.finish_command(Op.SEND_ACTIVATION, 1)
    scene.now += 7.0
    assert scene.value("takt_stage_in_flight_microbatches", **FIRST) == 3
    assert scene.value("takt_stage_in_flight_microbatches", **SECOND) == 2
    assert scene.value("takt_stage_memory_peak_bytes", **FIRST) == 4096
    assert scene.value("takt_stage_memory_peak_bytes", **SECOND) is None
    assert scene.value("takt_transfer_bytes_total", direction="sent", **RUN) == 10
    assert scene.value("takt_transfer_bytes_total", direction="received", **RUN) == 20
    assert scene.value("takt_commands_total", op="send_activation", **RUN) == 1
    assert scene.value("takt_commands_total", op="forward", **RUN) == 0
    assert scene.value("takt_worker_last_progress_timestamp_seconds", **RUN) == 4993.0


def test_metrics_before_the_first_command_show_no_progress(scene: Scene) -> None:
    assert scene.value("takt_worker_last_progress_timestamp_seconds", **RUN) is None


def test_metrics_series_go_when_the_run_ends(scene: Scene) -> None:
    assert b"takt_" in generate_latest(scene.registry)
    scene.exposed = None
    assert generate_latest(scene.registry) == b""
