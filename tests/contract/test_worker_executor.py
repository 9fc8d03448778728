"""A real executor process against a coordinator that follows a script."""

import hashlib
import time
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest
from takt.v1 import commands_pb2, data_pb2
from takt.v1 import workers_pb2 as pb

from stage_worker.engine.ledger import Activity
from tests.contract.fake_data_service import FakeDataService, serving
from tests.contract.scripted_executor import ORPHAN_SECONDS, SPEC, ExecutorUnderTest, ScriptedCoordinator, commands

pytestmark = pytest.mark.timeout(120)

SHAPES = ((3, 7), (2, 5))
F, B, INPUT, WEIGHT, REDUCE, STEP, SAVE, STOP = (
    commands_pb2.OP_FORWARD,
    commands_pb2.OP_BACKWARD,
    commands_pb2.OP_INPUT_GRADIENT,
    commands_pb2.OP_WEIGHT_GRADIENT,
    commands_pb2.OP_REDUCE,
    commands_pb2.OP_STEP,
    commands_pb2.OP_SAVE,
    commands_pb2.OP_STOP,
)
TRAIN = (F, F, B, B, REDUCE, STEP)


@pytest.fixture
def coordinator() -> ScriptedCoordinator:
    return ScriptedCoordinator()


@pytest.fixture
def data_service() -> FakeDataService:
    return FakeDataService(SHAPES)


@pytest.fixture
def executor(
    coordinator: ScriptedCoordinator, data_service: FakeDataService, tmp_path: Path
) -> Iterator[ExecutorUnderTest]:
    with ExitStack() as stack:
        process = ExecutorUnderTest(stack.enter_context(coordinator.serving()), tmp_path)
        stack.callback(process.end)
        process.give_work(data_service=stack.enter_context(serving(data_service)))
        yield process


def begin(coordinator: ScriptedCoordinator) -> None:
    """Go through the meeting of the workers, of which there is one."""
    hello = coordinator.hear("hello")
    assert (hello.job, hello.attempt, hello.worker) == ("a", 1, 0)
    coordinator.meet(coordinator.hear("store_opened").address)
    assert coordinator.hear("ready").parameters > 0


def test_executor_whole_life(
    executor: ExecutorUnderTest, coordinator: ScriptedCoordinator, data_service: FakeDataService, tmp_path: Path
) -> None:
    begin(coordinator)
    assert executor.snapshot().loaded
    for step in (1, 2):  # the second is there while the first runs
        coordinator.command(commands(*TRAIN, first_seq=6 * step - 5, step=step, shapes=SHAPES, ends_step=True))
    first, second = coordinator.hear("step"), coordinator.hear("step")
    assert (first.step, first.last_seq, second.step, second.last_seq) == (1, 6, 2, 12)
    assert len(first.loss_sums) == 2
    assert first.loss_sums[0] > first.loss_sums[1] > 0  # 3 rows against 2
    assert first.learning_rate == 1e-3
    assert first.grad_norm > 0
    assert {share.activity for share in first.times if share.busy and share.seconds} == {"F", "B", "step"}

    coordinator.command(commands(F, F, first_seq=13, phase=data_pb2.PHASE_EVALUATE, shapes=SHAPES, ends_step=True))
    rows = coordinator.hear("rows")
    assert [row.row_id for row in rows.rows] == [100, 101, 102, 110, 111]
    assert [row.label for row in rows.rows] == [0, 1, 0, 0, 1]
    assert all(len(row.outputs) == 2 for row in rows.rows)
    evaluated = coordinator.hear("step")
    assert (rows.split, evaluated.phase) == ("validation", data_pb2.PHASE_EVALUATE)

    snapshot = executor.snapshot()
    now = time.monotonic()
    assert sum(snapshot.seconds(now).values()) == pytest.approx(now - snapshot.started, rel=0.01)
    shares = [share for report in (first, second, evaluated) for share in report.times]
    computed = sum(share.seconds for share in shares if share.activity == "F")
    assert computed == pytest.approx(snapshot.ended_seconds[Activity.FORWARD, 0])  # each second is told once
    assert sum(share.seconds for share in shares) < now - snapshot.started

    coordinator.command(commands(SAVE, first_seq=15, step=2))
    saved = coordinator.hear("saved")
    assert saved.step == 2
    assert {shard.kind for shard in saved.shards} == {"parameters", "optimizer", "model"}
    for shard in saved.shards:
        content = (tmp_path / "jobs" / "a" / "checkpoints" / "step-2" / shard.file).read_bytes()
        assert (shard.bytes, shard.sha256) == (len(content), hashlib.sha256(content).hexdigest())

    coordinator.command(commands(STOP, first_seq=16, step=2))
    assert executor.process.wait(timeout=30) == 0
    snapshot = executor.snapshot()  # outlives the process
    assert snapshot.seq == 16
    assert sum(snapshot.commands) == 16
    assert snapshot.ended_seconds[Activity.FORWARD, 0] > 0
    asked = [(request.split, request.step) for request in data_service.requests]
    assert {("train", 1), ("train", 2), ("validation", 1)} <= set(asked)
    assert len(set(asked)) == len(asked)


def test_executor_with_the_first_and_the_last_stage_keeps_them_apart_and_reads_the_columns_of_both(
    coordinator: ScriptedCoordinator, data_service: FakeDataService, tmp_path: Path
) -> None:
    """Two stages of a V's worker: what one hands the other is not transferred."""
    stages = (
        pb.StageSlice(stage=0, first_layer=0, num_layers=1),
        pb.StageSlice(stage=1, first_layer=1, num_layers=1, splits_backward=True),
    )
    order = [(0, F, 0), (1, F, 0), (0, F, 1), (1, INPUT, 0), (1, F, 1), (0, B, 0), (1, WEIGHT, 0)]
    order += [(1, INPUT, 1), (0, B, 1), (1, WEIGHT, 1), (0, REDUCE, 0), (0, STEP, 0)]
    with ExitStack() as stack:
        executor = ExecutorUnderTest(stack.enter_context(coordinator.serving()), tmp_path)
        stack.callback(executor.end)
        executor.give_work(data_service=stack.enter_context(serving(data_service)), stages=stages)
        begin(coordinator)
        listed = [commands_pb2.Command(op=op, stage=s, microbatch=m) for s, op, m in order]
        begun = commands(first_seq=1, shapes=SHAPES, acknowledge=True)
        begun.commands.extend(listed[:6])
        coordinator.command(begun)
        assert coordinator.hear("done").seq == 6
        assert executor.snapshot().in_flight == {0: 1, 1: 2}  # of stage 1 no W is done
        rest = commands(first_seq=7, shapes=SHAPES, ends_step=True)
        rest.commands.extend(listed[6:])
        coordinator.command(rest)
        report = coordinator.hear("step")
        busy = {(share.stage, share.activity) for share in report.times if share.busy and share.seconds}
        assert busy == {(0, "F"), (0, "B"), (0, "step"), (1, "F"), (1, "I"), (1, "W")}
        assert report.loss_sums[0] > report.loss_sums[1] > 0  # 3 rows against 2
        assert (report.sent_bytes, report.received_bytes, report.peak_in_flight) == (0, 0, 4)
        assert [request.step for request in data_service.requests].count(1) == 1
        assert sorted(data_service.requests[0].columns) == ["attention_mask", "input_ids", "labels", "token_type_ids"]
        snapshot = executor.snapshot()
        assert snapshot.in_flight == {0: 0, 1: 0}
        assert snapshot.ended_seconds[Activity.WEIGHT_GRADIENT, 1] > 0

        coordinator.command(commands(SAVE, first_seq=13))
        saved = coordinator.hear("saved")
        assert [(shard.kind, shard.stage) for shard in saved.shards] == [
            ("parameters", 0),
            ("optimizer", 0),
            ("model", 0),
            ("parameters", 1),
            ("optimizer", 1),
        ]
        coordinator.command(commands(STOP, first_seq=14))
        assert executor.process.wait(timeout=30) == 0


def test_executor_single_commands_are_acknowledged_one_by_one(
    executor: ExecutorUnderTest, coordinator: ScriptedCoordinator
) -> None:
    begin(coordinator)
    for seq, op in enumerate(TRAIN, start=1):
        message = commands(op, first_seq=seq, shapes=SHAPES, ends_step=op == STEP, acknowledge=True)
        message.commands[0].microbatch = int(seq in (2, 4))
        coordinator.command(message)
        assert coordinator.hear("done").seq == seq
    assert coordinator.hear("step").last_seq == len(TRAIN)
    coordinator.command(commands(STOP, first_seq=7, acknowledge=True))
    assert coordinator.hear("done").seq == 7
    assert executor.process.wait(timeout=30) == 0


def test_executor_that_fails_says_where_and_why_and_leaves_a_trace(
    executor: ExecutorUnderTest, coordinator: ScriptedCoordinator
) -> None:
    begin(coordinator)
    wrong = ((3, 7), (2, 6))  # the service has width 5
    coordinator.command(commands(F, F, first_seq=1, step=4, shapes=wrong))
    failure = coordinator.hear("failure")
    assert (failure.type, failure.step, failure.stage, failure.microbatch) == ("DataError", 4, 0, 1)
    assert "microbatch 1 of train step 4" in failure.message
    assert not failure.peer_lost
    assert executor.process.wait(timeout=30) == 1
    assert "Traceback" in executor.log.read_text()


def test_executor_commands_after_a_gap_are_fatal(executor: ExecutorUnderTest, coordinator: ScriptedCoordinator) -> None:
    begin(coordinator)
    coordinator.command(commands(STOP, first_seq=3))
    failure = coordinator.hear("failure")
    assert (failure.type, failure.message) == ("FenceError", "commands 1 to 2 are missing")
    assert executor.process.wait(timeout=30) == 1


def test_executor_of_an_attempt_that_is_over_ends(
    executor: ExecutorUnderTest, coordinator: ScriptedCoordinator
) -> None:
    begin(coordinator)
    coordinator.hang_up()
    assert executor.process.wait(timeout=30) == 1
    assert "the attempt is over" in executor.log.read_text()


def test_executor_whose_coordinator_does_not_come_back_in_time_ends(
    coordinator: ScriptedCoordinator, data_service: FakeDataService, tmp_path: Path
) -> None:
    with serving(data_service) as data_address:
        with coordinator.serving() as address:
            executor = ExecutorUnderTest(address, tmp_path)
            executor.give_work(data_service=data_address)
            begin(coordinator)
            lost_at = time.monotonic()
        try:
            assert executor.process.wait(timeout=30) == 1
            assert time.monotonic() - lost_at >= ORPHAN_SECONDS
            assert "the stream to the coordinator broke: UNAVAILABLE" in executor.log.read_text()
        finally:
            executor.end()


def test_executor_model_that_cannot_be_loaded_is_told(coordinator: ScriptedCoordinator, tmp_path: Path) -> None:
    (tmp_path / "empty").mkdir()
    spec = SPEC | {"model": {"pretrained": str(tmp_path / "empty"), "config": None, "attention": "sdpa"}}
    with coordinator.serving() as address:
        executor = ExecutorUnderTest(address, tmp_path)
        try:
            executor.give_work(data_service="127.0.0.1:1", spec=spec)
            coordinator.hear("hello")
            coordinator.hear("store_opened")
            failure = coordinator.hear("failure")
            assert failure.type == "ModelConfigError"
            assert "has no config.json" in failure.message
            assert executor.process.wait(timeout=30) == 1
        finally:
            executor.end()


@pytest.mark.parametrize("moment", ["imports", "waits"])
def test_executor_ends_when_its_stdin_closes(
    moment: str, coordinator: ScriptedCoordinator, data_service: FakeDataService, tmp_path: Path
) -> None:
    with coordinator.serving() as address, serving(data_service) as data_address:
        executor = ExecutorUnderTest(address, tmp_path)
        try:
            if moment == "waits":
                executor.give_work(data_service=data_address)
                begin(coordinator)
            executor.close_stdin()
            assert executor.process.wait(timeout=30) != 0
        finally:
            executor.end()
