"""What the services tell Prometheus about a run, and that it goes with the run."""

import time
from collections import defaultdict
from pathlib import Path

import pytest

from tests.integration.services.endpoint import Sample, of_run, samples, total
from tests.integration.services.job_files import write_job
from tests.integration.services.standing import Standing, lines_of
from tests.integration.services.waiting import wait_until

pytestmark = pytest.mark.timeout(150)

RUN, WORKER, STAGE = {"run"}, {"run", "worker", "dp_rank"}, {"run", "stage", "worker", "dp_rank"}
OF_AGENT = {
    "takt_stage_busy_seconds_total": STAGE | {"op"},
    "takt_worker_idle_seconds_total": WORKER | {"reason"},
    "takt_stage_in_flight_microbatches": STAGE,
    "takt_stage_memory_peak_bytes": STAGE,
    "takt_transfer_bytes_total": WORKER | {"direction"},
    "takt_commands_total": WORKER | {"op"},
    "takt_worker_last_progress_timestamp_seconds": WORKER,
}
OF_COORDINATOR = {
    "takt_step_seconds_bucket": RUN | {"le"},
    "takt_step_seconds_sum": RUN,
    "takt_step_seconds_count": RUN,
    "takt_steps_total": RUN,
    "takt_steps_skipped_total": RUN,
    "takt_examples_total": RUN,
    "takt_tokens_total": RUN,
    "takt_padded_tokens_total": RUN,
    "takt_loss": RUN,
    "takt_grad_norm": RUN,
    "takt_learning_rate": RUN,
    "takt_plan_bubble_ratio": RUN,
    "takt_checkpoint_seconds_bucket": RUN | {"le"},
    "takt_checkpoint_seconds_sum": RUN,
    "takt_checkpoint_seconds_count": RUN,
}
ALWAYS = {
    "coordinator": {
        "takt_jobs": {"state"},
        "takt_workers": {"state"},
        "takt_rpc_server_handled_total": {"method", "code"},
        "takt_build_info": {"version"},
    },
    "data-service": {
        "takt_data_batches_total": set(),
        "takt_data_build_seconds_bucket": {"le"},
        "takt_data_build_seconds_sum": set(),
        "takt_data_build_seconds_count": set(),
        "takt_rpc_server_handled_total": {"method", "code"},
        "takt_build_info": {"version"},
    },
    "agent-0": {"takt_build_info": {"version"}},
}
REASONS = {"activation", "gradient", "send", "data", "command", "reduce", "checkpoint", "other"}
WINDOW_SECONDS = 5.0


def labels_by_name(found: list[Sample]) -> dict[str, set[str]]:
    """Return the label names of each Takt series; its children must agree."""
    names = defaultdict(set)
    for sample in found:
        if sample.name.startswith("takt_") and not sample.name.endswith("_created"):
            names[sample.name].add(frozenset(sample.labels))
    assert all(len(sets) == 1 for sets in names.values())
    return {name: set(*sets) for name, sets in names.items()}


def test_metrics_of_a_run_are_complete_true_and_gone_with_it(up: Standing, tmp_path: Path) -> None:
    job = "measured"
    # 40 steps an epoch; a checkpoint is written every 100 steps.
    changes = {"data.max_train_rows": 640, "train.epochs": 10_000, "schedule.num_microbatches": 2}
    up.submit(write_job(tmp_path / "job.yaml", changes), job)
    beat = up.metrics_addresses["coordinator"]

    def has_checkpoint() -> bool:
        return any(
            sample.value > 0 for sample in of_run(samples(beat), job) if sample.name == "takt_checkpoint_seconds_count"
        )

    wait_until("a checkpoint is counted", has_checkpoint, limit_seconds=60)
    agents = {worker: up.metrics_addresses[up.agent_of(job, worker=worker)] for worker in (0, 1)}

    def look() -> dict[int, tuple[float, list[Sample]]]:
        return {worker: (time.monotonic(), samples(address)) for worker, address in agents.items()}

    before = look()
    time.sleep(WINDOW_SECONDS)  # the time that must be accounted for
    after = look()
    coordinator, data = samples(beat), samples(up.metrics_addresses["data-service"])

    for worker in (0, 1):
        (began, old), (ended, new) = before[worker], after[worker]
        accounted = sum(
            total(new, name) - total(old, name)
            for name in ("takt_stage_busy_seconds_total", "takt_worker_idle_seconds_total")
        )
        assert accounted == pytest.approx(ended - began, rel=0.01)
        assert labels_by_name(of_run(new, job)) == OF_AGENT
        assert all(
            (sample.labels["worker"], sample.labels["dp_rank"], sample.labels.get("stage", str(worker)))
            == (str(worker), "0", str(worker))
            for sample in of_run(new, job)
        )
        reasons = {s.labels["reason"] for s in new if s.name == "takt_worker_idle_seconds_total"}
        assert reasons == REASONS
        for name in ("takt_stage_busy_seconds_total", "takt_transfer_bytes_total", "takt_commands_total"):
            assert total(new, name) > total(old, name)
        progress = total(new, "takt_worker_last_progress_timestamp_seconds")
        assert abs(time.time() - progress) < WINDOW_SECONDS
    assert labels_by_name(of_run(coordinator, job)) == OF_COORDINATOR
    assert of_run(data, job) == []
    for service, expected in ALWAYS.items():
        found = labels_by_name(samples(up.metrics_addresses[service]))
        assert expected.items() <= found.items(), service

    # Two stages pass the same bytes on: what one sends, the other receives.
    (_, first), (_, second) = look().values()
    assert total(first, "takt_transfer_bytes_total") == pytest.approx(total(second, "takt_transfer_bytes_total"), rel=0.1)
    jobs = {s.labels["state"]: s.value for s in coordinator if s.name == "takt_jobs"}
    workers = {s.labels["state"]: s.value for s in coordinator if s.name == "takt_workers"}
    assert jobs["RUNNING"] == 1
    assert (workers["busy"], workers["free"]) == (2, 2)

    steps = {step["step"]: step for step in lines_of(up.folder(job) / "steps.jsonl")[:-1]}
    num_steps = int(total(coordinator, "takt_steps_total"))
    counted = [steps[number] for number in range(1, num_steps + 1)]
    assert total(coordinator, "takt_step_seconds_count") == num_steps
    assert total(coordinator, "takt_loss") == counted[-1]["loss"]
    for name in ("examples", "tokens", "padded_tokens"):
        assert total(coordinator, f"takt_{name}_total") == sum(step[name] for step in counted)

    assert up.takt("cancel", job).code == 0
    assert up.takt("wait", job).code == 7
    up.assert_clean(job)
