from dataclasses import replace

from prometheus_client import CollectorRegistry, generate_latest

from coordinator.membership import SlotState
from coordinator.metrics import Census, RunMetrics
from coordinator.records import JobState, StepRecord


def step(number: int, *, loss: float | None = 0.5) -> StepRecord:
    return StepRecord(
        step=number, epoch=0, loss=loss, grad_norm=3.0, learning_rate=1e-3, examples=8, tokens=90, padded_tokens=6,
        seconds=0.2, skipped=False,
    )  # fmt: skip


def series(registry: CollectorRegistry) -> dict[str, float]:
    lines = [line for line in generate_latest(registry).decode().splitlines() if not line.startswith("#")]
    return {name: float(value) for name, value in (line.rsplit(" ", 1) for line in lines) if "_created" not in name}


def test_run_metrics_committed_steps_add_up() -> None:
    registry = CollectorRegistry()
    metrics = RunMetrics(registry)
    metrics.planned("r", bubble_fraction=0.25)
    metrics.committed("r", step(1))
    metrics.committed("r", step(2, loss=None))
    found = series(registry)
    label = '{run="r"}'
    assert found[f"takt_steps_total{label}"] == 2
    assert found[f"takt_examples_total{label}"] == 16
    assert found[f"takt_tokens_total{label}"] == 180
    assert found[f"takt_padded_tokens_total{label}"] == 12
    assert found[f"takt_loss{label}"] == 0.5
    assert found[f"takt_grad_norm{label}"] == 3.0
    assert found[f"takt_learning_rate{label}"] == 1e-3
    assert found[f"takt_plan_bubble_ratio{label}"] == 0.25
    assert found[f"takt_step_seconds_count{label}"] == 2


def test_run_metrics_a_skipped_step_is_counted_and_leaves_loss_and_norm_as_they_were() -> None:
    registry = CollectorRegistry()
    metrics = RunMetrics(registry)
    metrics.committed("r", step(1))
    metrics.committed("r", replace(step(2), loss=None, grad_norm=None, skipped=True, loss_scale=65536.0))
    found = series(registry)
    label = '{run="r"}'
    assert found[f"takt_steps_total{label}"] == 2
    assert found[f"takt_steps_skipped_total{label}"] == 1
    assert found[f"takt_loss{label}"] == 0.5
    assert found[f"takt_grad_norm{label}"] == 3.0


def test_run_metrics_a_checkpoint_is_counted_with_its_time() -> None:
    registry = CollectorRegistry()
    RunMetrics(registry).checkpointed("r", seconds=1.5)
    found = series(registry)
    assert found['takt_checkpoint_seconds_count{run="r"}'] == 1
    assert found['takt_checkpoint_seconds_sum{run="r"}'] == 1.5


def test_run_metrics_ended_run_leaves_no_series_and_others_theirs() -> None:
    registry = CollectorRegistry()
    metrics = RunMetrics(registry)
    for run in ("a", "b"):
        metrics.planned(run, bubble_fraction=0.25)
        metrics.committed(run, step(1))
        metrics.checkpointed(run, seconds=0.5)
    metrics.ended("a")
    metrics.ended("never began")
    found = series(registry)
    assert not [name for name in found if '"a"' in name]
    assert found['takt_steps_total{run="b"}'] == 1


def test_census_counts_by_state() -> None:
    registry = CollectorRegistry()
    registry.register(
        Census(
            jobs=lambda: {JobState.QUEUED: 2, JobState.FAILED: 0},
            slots=lambda: {SlotState.FREE: 1, SlotState.BUSY: 0, SlotState.LOST: 3},
        )
    )
    assert series(registry) == {
        'takt_jobs{state="QUEUED"}': 2,
        'takt_jobs{state="FAILED"}': 0,
        'takt_workers{state="free"}': 1,
        'takt_workers{state="busy"}': 0,
        'takt_workers{state="lost"}': 3,
    }
