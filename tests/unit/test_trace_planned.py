"""Traces of plans: what is drawn of a hand-run step, and what holds for every schedule."""

from collections import defaultdict
from dataclasses import replace
from pathlib import Path

import pytest

from coordinator.cli.app import main
from coordinator.schedule.actions import Action, Op
from coordinator.schedule.channels import counterpart
from coordinator.schedule.custom import make_custom_plan
from coordinator.schedule.plan import Plan, Schedule, make_plan
from coordinator.schedule.simulate import Costs, simulate
from coordinator.schedule.stage_costs import StageCosts
from coordinator.trace.chrome import to_chrome
from coordinator.trace.planned import planned_trace, repeated
from coordinator.trace.timeline import Trace, Track
from tests.unit.chrome_document import Document, assert_nothing_overlaps


def trace_of(plan: Plan, comm: float = 0.0, *, unit_seconds: float = 1.0, num_replicas: int = 1) -> Trace:
    return planned_trace(
        simulate(plan, Costs(comm=comm)),
        plan.placement,
        job="plan",
        schedule=plan.schedule,
        unit_seconds=unit_seconds,
        comm=comm,
        num_replicas=num_replicas,
    )


def rows(trace: Trace, worker: int, track: Track) -> list[tuple[str, float, float, int | None, int | None]]:
    spans = trace.workers[worker].spans
    return [(s.name, s.start, s.end, s.stage, s.microbatch) for s in spans if s.track is track]


def test_planned_trace_of_two_workers_is_a_run_by_hand() -> None:
    """1F1B with a forward of 2 s, a backward of 4 s and 1 s on the way."""
    trace = trace_of(make_plan("1f1b", num_workers=2, num_microbatches=2), 0.5, unit_seconds=2.0)
    assert rows(trace, 0, Track.COMPUTE) == [
        ("F", 0, 2, 0, 0),
        ("F", 2, 4, 0, 1),
        ("gradient", 4, 10, 0, 0),
        ("B", 10, 14, 0, 0),
        ("gradient", 14, 16, 0, 1),
        ("B", 16, 20, 0, 1),
    ]
    assert rows(trace, 1, Track.COMPUTE) == [
        ("activation", 0, 3, 1, 0),
        ("F", 3, 5, 1, 0),
        ("B", 5, 9, 1, 0),
        ("F", 9, 11, 1, 1),
        ("B", 11, 15, 1, 1),
        ("reduce", 15, 20, None, None),
    ]
    assert rows(trace, 0, Track.SEND) == [("activation", 2, 3, 0, 0), ("activation", 4, 5, 0, 1)]
    assert rows(trace, 1, Track.RECEIVE) == [("activation", 2, 3, 0, 0), ("activation", 4, 5, 0, 1)]
    assert rows(trace, 1, Track.SEND) == [("gradient", 9, 10, 1, 0), ("gradient", 15, 16, 1, 1)]
    assert rows(trace, 0, Track.RECEIVE) == [("gradient", 9, 10, 1, 0), ("gradient", 15, 16, 1, 1)]
    assert [(s.time, s.in_flight) for s in trace.workers[0].samples] == [(0, 1), (2, 2), (14, 1), (20, 0)]
    assert [(s.time, s.in_flight) for s in trace.workers[1].samples] == [(3, 1), (9, 1), (15, 0)]


def test_planned_trace_of_split_backwards_holds_a_microbatch_until_its_last_half() -> None:
    text = "0F0,0F1,0B0,0B1\n1F0,1I0,1F1,1I1,1W0,1W1\n"
    trace = trace_of(make_custom_plan(text, num_workers=None, num_chunks=None, num_microbatches=None))
    assert [(s.time, s.in_flight) for s in trace.workers[1].samples] == [(1, 1), (3, 2), (6, 1), (7, 0)]


def test_planned_trace_of_uneven_stages_begins_with_the_update_and_sends_as_each_boundary_takes() -> None:
    plan = make_plan("gpipe", num_workers=3, num_microbatches=1)
    ones = (1.0, 1.0, 1.0)
    costs = StageCosts(
        forward=ones,
        backward=ones,
        input_gradient=ones,
        weight_gradient=ones,
        transfer=(0.25, 0.5),
        reduce=(0.0, 0.0, 0.0),
        optimizer=(2.0, 0.0, 9.0),
        step_end=1.0,
    )
    trace = planned_trace(
        simulate(plan, costs),
        plan.placement,
        job="plan",
        schedule="gpipe",
        unit_seconds=1.0,
        comm=costs.transfer,
        optimizer=costs.optimizer,
    )
    assert rows(trace, 0, Track.COMPUTE)[:2] == [("step", 0, 2, None, None), ("F", 2, 3, 0, 0)]
    assert rows(trace, 1, Track.RECEIVE) == [("activation", 3, 3.25, 0, 0), ("gradient", 11, 11.5, 2, 0)]
    assert rows(trace, 2, Track.COMPUTE) == [
        ("step", 0, 9, None, None),
        ("F", 9, 10, 2, 0),
        ("B", 10, 11, 2, 0),
        ("reduce", 11, 14.75, None, None),
    ]


@pytest.mark.parametrize("name", Schedule)
@pytest.mark.parametrize("comm", [0.0, 0.3])
def test_planned_trace_of_every_schedule_opens_with_all_actions_arrows_and_no_overlap(name: str, comm: float) -> None:
    chunks = 2 if name in ("interleaved", "looped_bfs", "zbv", "dualpipev") else 1
    plan = make_plan(name, num_workers=3, num_chunks=chunks, num_microbatches=6, num_slices=2)
    document = Document("".join(to_chrome(None, trace_of(plan, comm, num_replicas=2))))
    assert_nothing_overlaps(document.slices)
    named: defaultdict[str, list[str]] = defaultdict(list)
    for one in document.slices:
        if one.category == "busy":
            named[one.process].append(one.name)
    orders = [list(map(str, order)) for order in plan.orders] * 2
    assert [named[f"worker {worker} (planned)"] for worker in range(6)] == orders
    sends = {
        (f"worker {worker + 3 * replica} (planned)", str(action))
        for replica in (0, 1)
        for worker, actions in enumerate(plan.workers)
        for action in actions
        if isinstance(action, Action) and action.op in (Op.SEND_ACTIVATION, Op.SEND_GRADIENT)
    }
    arrows = document.arrows()
    assert {(tail.process, tail.name) for tail, _ in arrows} == sends
    assert len(arrows) == len(sends)
    for tail, head in arrows:
        action = plan_action(tail.name)
        replica = int(tail.process.split()[1]) // 3
        receiver = 3 * replica + plan.placement.worker_of(counterpart(action).stage)
        assert (head.process, head.name) == (f"worker {receiver} (planned)", str(counterpart(action)))
        assert (tail.args["peer"], head.args["peer"]) == (receiver, int(tail.process.split()[1]))
        assert tail.end <= head.end


def plan_action(text: str) -> Action:
    stage, rest = text.split("SEND_")
    op = Op.SEND_ACTIVATION if rest[0] == "F" else Op.SEND_GRADIENT
    return Action(int(stage), op, int(rest[1:]))


def test_repeated_plan_begins_anew_with_each_step_on_the_clock_of_the_measured_trace() -> None:
    trace = trace_of(make_plan("gpipe", num_workers=2, num_microbatches=1))
    twice = repeated(trace, {7: 100.0, 8: 200.5}, origin=5.0)
    first = [s for s in twice.workers[0].spans if s.name == "F"]
    assert first == [replace(first[0], step=7, start=100, end=101), replace(first[0], step=8, start=200.5, end=201.5)]
    assert [s.time for s in twice.workers[0].samples] == [100, 106, 200.5, 206.5]
    assert twice.origin == 5.0


def test_repeated_plan_waits_for_the_step_before_it_where_steps_were_faster_than_planned() -> None:
    """A step is planned to take 6 s; the second one began after 2 s, the third one late enough."""
    trace = trace_of(make_plan("gpipe", num_workers=2, num_microbatches=1))
    thrice = repeated(trace, {1: 0.0, 2: 2.0, 3: 50.0}, origin=0.0)
    assert [(s.step, s.start) for s in thrice.workers[0].spans if s.name == "F"] == [(1, 0), (2, 6), (3, 50)]


def test_plan_command_writes_a_trace_in_which_a_forward_takes_a_millisecond(tmp_path: Path) -> None:
    path = tmp_path / "plan.json"
    options = ["--stages", "2", "--microbatches", "2", "--comm", "0.5", "--perfetto", str(path)]
    assert main(["plan", *options]) == 0
    document = Document(path.read_text())
    assert "1 ms stands for what one microbatch's forward takes" in document.raw["metadata"]["remark"]
    found = {(one.name, one.start, one.end) for one in document.slices if one.process == "worker 1 (planned)"}
    assert ("1F0", 1_500_000, 2_500_000) in found
    assert ("1RECV_F0", 1_000_000, 1_500_000) in found


def test_plan_command_says_where_a_trace_cannot_be_written(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["plan", "--stages", "2", "--perfetto", "/no/such/folder/plan.json"]) == 2
    captured = capsys.readouterr()
    assert captured.out == ""
    assert "--perfetto /no/such/folder/plan.json cannot be written" in captured.err
