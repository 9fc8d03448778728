"""What the services tell Prometheus about a run, and that it goes with the run."""

import time
from collections import defaultdict
from dataclasses import dataclass
from pathlib import Path

import pytest

from tests.integration.services.endpoint import Sample, of_run, samples, total
from tests.integration.services.job_files import write_job
from tests.integration.services.standing import Standing, lines_of
from tests.integration.services.waiting import wait_until

pytestmark = pytest.mark.timeout(240)

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
        "takt_data_reads": {"state"},
        "takt_data_queue_seconds_sum": {"dp_rank"},
        "takt_data_queue_seconds_count": {"dp_rank"},
        "takt_data_send_seconds_total": {"dp_rank"},
        "takt_rpc_server_handled_total": {"method", "code"},
        "takt_build_info": {"version"},
    },
    "agent-0": {"takt_build_info": {"version"}},
}
REASONS = {"activation", "gradient", "send", "data", "command", "reduce", "checkpoint", "other"}
WINDOW_SECONDS = 5.0
MOST_WAITING_FOR_DATA = 0.05
"""Of a worker's time. Its rows are there before it asks, so this is what a busy machine makes of a look at them."""
HELD_STEP = 102


def labels_by_name(found: list[Sample]) -> dict[str, set[str]]:
    """Return the label names of each Takt series; its children must agree."""
    names = defaultdict(set)
    for sample in found:
        if sample.name.startswith("takt_") and not sample.name.endswith("_created"):
            names[sample.name].add(frozenset(sample.labels))
    assert all(len(sets) == 1 for sets in names.values())
    return {name: set(*sets) for name, sets in names.items()}


@dataclass(frozen=True)
class Scrape:
    """An agent's series, read at some time from ``began`` to ``ended``."""

    began: float
    ended: float
    samples: list[Sample]

    @classmethod
    def of(cls, address: str) -> "Scrape":
        began = time.monotonic()
        found = samples(address)
        return cls(began, time.monotonic(), found)

    @property
    def accounted(self) -> float:
        """Seconds busy and idle."""
        return total(self.samples, "takt_stage_busy_seconds_total") + total(
            self.samples, "takt_worker_idle_seconds_total"
        )

    @property
    def waited_for_data(self) -> float:
        """Seconds that the worker waited for rows."""
        idle = [s for s in self.samples if s.name == "takt_worker_idle_seconds_total"]
        return sum(s.value for s in idle if s.labels["reason"] == "data")


def by_direction(found: list[Sample]) -> dict[str, float]:
    return {s.labels["direction"]: s.value for s in found if s.name == "takt_transfer_bytes_total"}


def by_state(found: list[Sample], name: str) -> dict[str, float]:
    return {s.labels["state"]: s.value for s in found if s.name == name}


def test_metrics_of_a_run_are_complete_true_and_gone_with_it(up: Standing, tmp_path: Path) -> None:
    job = "measured"
    up.faults.ask(job, "hold", stage=0, step=HELD_STEP)
    # 40 steps an epoch; a checkpoint is written every 100 steps.
    changes = {"data.max_train_rows": 640, "train.epochs": 10_000, "schedule.num_microbatches": 2}
    up.submit(write_job(tmp_path / "job.yaml", changes), job)
    up.faults.reached(job)
    beat = up.metrics_addresses["coordinator"]
    agents = {worker: up.metrics_addresses[up.agent_of(job, worker=worker)] for worker in (0, 1)}

    def all_committed() -> bool:
        return total(of_run(samples(beat), job), "takt_steps_total") == HELD_STEP - 1

    wait_until("all steps before the held one are committed", all_committed, limit_seconds=10)
    assert_coordinator_is_right(up, job)
    held = {worker: of_run(samples(address), job) for worker, address in agents.items()}
    for worker, found in held.items():
        assert labels_by_name(found) == OF_AGENT
        for sample in found:
            place = (sample.labels["worker"], sample.labels["dp_rank"], sample.labels.get("stage", str(worker)))
            assert place == (str(worker), "0", str(worker))
        assert {s.labels["reason"] for s in found if s.name == "takt_worker_idle_seconds_total"} == REASONS
        assert total(found, "takt_stage_memory_peak_bytes") > 50 * 2**20
    first, second = by_direction(held[0]), by_direction(held[1])
    assert first["sent"] == second["received"] > 0
    assert first["received"] == second["sent"] > 0

    up.faults.let_go(job)
    before = {worker: Scrape.of(address) for worker, address in agents.items()}
    time.sleep(WINDOW_SECONDS)  # the time that must be accounted for
    for worker, address in agents.items():
        old, new = before[worker], Scrape.of(address)
        accounted = new.accounted - old.accounted
        assert 0.99 * (new.began - old.ended) <= accounted <= 1.01 * (new.ended - old.began)
        assert new.waited_for_data - old.waited_for_data < MOST_WAITING_FOR_DATA * accounted
        for name in ("takt_stage_busy_seconds_total", "takt_transfer_bytes_total", "takt_commands_total"):
            assert total(new.samples, name) > total(old.samples, name)
        progress = total(new.samples, "takt_worker_last_progress_timestamp_seconds")
        assert abs(time.time() - progress) < WINDOW_SECONDS

    assert up.takt("cancel", job).code == 0
    assert up.takt("wait", job).code == 7
    up.assert_clean(job)


def assert_coordinator_is_right(up: Standing, job: str) -> None:
    """Hold that every service has its series, and that the coordinator's figures are those of ``steps.jsonl``."""
    of_service = {service: samples(address) for service, address in up.metrics_addresses.items()}
    for service, expected in ALWAYS.items():
        assert expected.items() <= labels_by_name(of_service[service]).items(), service
    assert of_run(of_service["data-service"], job) == []
    assert by_state(of_service["coordinator"], "takt_jobs")["RUNNING"] == 1
    slots = by_state(of_service["coordinator"], "takt_workers")
    assert (slots["busy"], slots["free"]) == (2, 2)

    found = of_run(of_service["coordinator"], job)
    assert labels_by_name(found) == OF_COORDINATOR
    steps = lines_of(up.folder(job) / "steps.jsonl")
    assert len(steps) == HELD_STEP - 1
    assert total(found, "takt_step_seconds_count") == total(found, "takt_steps_total") == len(steps)
    assert total(found, "takt_steps_skipped_total") == 0
    assert total(found, "takt_checkpoint_seconds_count") == 1
    for name in ("loss", "grad_norm", "learning_rate"):
        assert total(found, f"takt_{name}") == steps[-1][name]
    for name in ("examples", "tokens", "padded_tokens"):
        assert total(found, f"takt_{name}_total") == sum(step[name] for step in steps)
    # (p - 1) / (m + p - 1)
    assert total(found, "takt_plan_bubble_ratio") == pytest.approx(1 / 3)
