"""What a run's timeline says of real workers: every action in its place, and nothing before its cause."""

import csv
import json
from collections import defaultdict
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest

from tests.integration.services.job_files import write_job
from tests.integration.services.standing import Standing, lines_of

pytestmark = pytest.mark.timeout(240)

NUM_STEPS, NUM_MICROBATCHES = 6, 4
CLOCK_MICROSECONDS = 0.002
"""Times are written to the nanosecond, rounded at both ends."""


@dataclass(frozen=True)
class Traced:
    """A job with two replicas of a V of four stages on two workers, and the trace that ``takt trace`` wrote of it."""

    folder: Path
    events: list[dict[str, Any]]

    def spans(self, process: int, kind: str | None = None) -> list[dict[str, Any]]:
        """Return the spans of a process in order of start; those of a category where one is named."""
        found = [e for e in self.events if e["ph"] == "X" and e["pid"] == process and kind in (None, e["cat"])]
        return sorted(found, key=lambda event: event["ts"])

    def processes(self, *, planned: bool) -> list[int]:
        """Return the numbers of the processes that were measured, or planned, worker 0 first."""
        names = {e["pid"]: e["args"]["name"] for e in self.events if e["name"] == "process_name"}
        return sorted(pid for pid, name in names.items() if ("planned" in name) is planned)


@pytest.fixture(scope="module")
def traced(_four_slots: Standing, tmp_path_factory: pytest.TempPathFactory) -> Traced:
    folder = tmp_path_factory.mktemp("traced")
    changes = {
        "parallel": {"pp": 2, "dp": 2},
        "schedule": {"name": "zbv", "num_chunks": 2, "num_microbatches": NUM_MICROBATCHES},
        "train": {"max_steps": NUM_STEPS, "global_batch_size": 16, "learning_rate": 1e-3},
        "data": {"task": "demo", "max_length": 32},
    }
    _four_slots.submit(write_job(folder / "job.yaml", changes), "traced")
    assert _four_slots.end_of("traced")["state"] == "SUCCEEDED"
    state = _four_slots.folder("traced").parent.parent
    written = _four_slots.takt("trace", "traced", "--state-dir", state, "--out", folder / "trace.json")
    assert written.code == 0, written.err
    events = json.loads((folder / "trace.json").read_text())["traceEvents"]
    return Traced(_four_slots.folder("traced"), events)


def test_every_action_of_the_plan_is_there_once_a_step_on_its_worker_and_in_its_order(traced: Traced) -> None:
    """Measured and planned; an action that waited for its input within is in two pieces."""
    with (traced.folder / "plan.csv").open() as file:
        plan = [[cell for cell in line if not cell.isalpha() and "_" not in cell] for line in csv.reader(file)]
    for planned in (False, True):
        processes = traced.processes(planned=planned)
        assert len(processes) == 4
        for worker, process in enumerate(processes):
            orders: defaultdict[int, list[str]] = defaultdict(list)
            for event in traced.spans(process, "busy"):
                order = orders[event["args"]["step"]]
                if event["args"]["kind"] != "step" and event["name"] not in order:
                    order.append(event["name"])
            assert dict(orders) == dict.fromkeys(range(1, NUM_STEPS + 1), plan[worker % 2])


def test_worker_does_one_thing_at_a_time(traced: Traced) -> None:
    for planned in (False, True):
        for process in traced.processes(planned=planned):
            computed = [e for e in traced.spans(process) if e["cat"] in ("busy", "idle")]
            for one, other in pairwise(computed):
                assert one["ts"] + one["dur"] <= other["ts"] + CLOCK_MICROSECONDS, (one, other)


def test_message_is_sent_before_it_is_taken_and_has_left_by_then(traced: Traced) -> None:
    sent, taken = (
        {
            (process // 4, *(e["args"][key] for key in ("step", "kind", "stage", "microbatch"))): e
            for process in traced.processes(planned=False)
            for e in traced.spans(process, kind)
        }
        for kind in ("send", "receive")
    )
    assert sent.keys() == taken.keys()
    # Of four stages in a V two boundaries lie between workers, and each microbatch crosses them forth and back.
    assert len(sent) == 2 * NUM_STEPS * NUM_MICROBATCHES * 2 * 2
    for key, send in sent.items():
        receive = taken[key]
        assert send["ts"] <= receive["ts"] + receive["dur"], key
        assert send["args"]["bytes"] == receive["args"]["bytes"] > 0
        assert send["ts"] + send["dur"] <= receive["ts"] + receive["dur"] + CLOCK_MICROSECONDS, key


def test_arrows_lead_from_each_send_to_the_receive_on_the_other_worker(traced: Traced) -> None:
    begins, ends = ({e["id"]: e for e in traced.events if e["ph"] == phase} for phase in ("s", "f"))
    assert begins.keys() == ends.keys()
    assert all(begins[arrow]["pid"] != ends[arrow]["pid"] for arrow in begins)
    measured = set(traced.processes(planned=False))
    assert sum(begin["pid"] in measured for begin in begins.values()) == 2 * NUM_STEPS * NUM_MICROBATCHES * 2 * 2


def test_steps_of_the_trace_take_what_was_journalled(traced: Traced) -> None:
    seconds = {line["step"]: line["seconds"] for line in lines_of(traced.folder / "steps.jsonl")}
    for process in traced.processes(planned=False):
        computed = [e for e in traced.spans(process) if e["cat"] in ("busy", "idle")]
        whole = [e for e in computed if e["args"]["step"] > 1]  # the first has the loading before it
        covered = sum(e["dur"] for e in whole) / 1e6
        assert covered == pytest.approx(sum(seconds[step] for step in range(2, NUM_STEPS + 1)), rel=0.3)


def test_costs_measured_at_a_coordinator_plan_the_job_in_seconds(up: Standing, tmp_path: Path) -> None:
    job = write_job(tmp_path / "job.yaml", {"data": {"task": "demo", "max_length": 32}})
    state = up.folder("any").parent.parent
    costs = tmp_path / "costs.json"
    done = up.takt("profile", job, "--out", costs, "--state-dir", state, "--coordinator", up.address)
    assert done.code == 0, done.err
    document = json.loads(costs.read_text())
    assert document["rows"] == [4, 8]
    for part in ("embeddings", "head"):
        assert all(0 < seconds < 1 for seconds in document[part]["forward_seconds"]), part
    layer = document["layers"][0]
    for table in ("forward", "backward", "input_gradient", "weight_gradient"):
        assert all(0 < seconds < 1 for seconds in layer[f"{table}_seconds"]), table
    planned = up.takt("plan", job, "--costs", costs, "--output", "json")
    assert planned.code == 0, planned.err
    two_layers_there_and_back = 2 * 2 * (layer["forward_seconds"][1] + layer["backward_seconds"][1])
    assert two_layers_there_and_back < planned.document["makespan"] < 10.0
