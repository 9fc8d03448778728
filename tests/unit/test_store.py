import sqlite3
import threading
from collections.abc import Callable
from contextlib import closing
from dataclasses import replace
from pathlib import Path

import pytest

from coordinator.files import JobFiles
from coordinator.records import (
    EvaluationRecord,
    JobError,
    JobRecord,
    JobState,
    Lease,
    StateChange,
    StepRecord,
    WorkerRecord,
)
from coordinator.store import JobExistsError, LostError, Store, StoreError


def job(name: str = "one", created: float = 1.0) -> JobRecord:
    return JobRecord(
        id=name,
        name="demo",
        spec_json="{}",
        digest="d",
        owner="me",
        num_slots=2,
        state=JobState.QUEUED,
        reason="submitted",
        created=created,
    )


def step(number: int, loss: float | None = 0.5) -> StepRecord:
    return StepRecord(
        step=number,
        epoch=1,
        loss=loss,
        grad_norm=2.0,
        learning_rate=1e-5,
        examples=8,
        tokens=90,
        padded_tokens=3,
        seconds=0.5,
        skipped=False,
        rows=(((1, 2), (3,)), ((), (4,))),
    )


def overflow(number: int) -> StepRecord:
    return replace(step(number, loss=None), grad_norm=None, skipped=True, loss_scale=65536.0)


def change(state: JobState, time: float, step: int = 0) -> StateChange:
    return StateChange(state=state, reason=f"now {state}", attempt=1, step=step, time=time)


def test_store_added_job_comes_back_with_its_first_change(tmp_path: Path) -> None:
    store = Store.open(tmp_path, owner="me")
    store.add_job(job())
    assert store.job("one") == job()
    assert store.history("one") == [StateChange(state=JobState.QUEUED, reason="submitted", attempt=0, step=0, time=1.0)]


def test_store_same_id_twice_is_refused_and_leaves_the_first(tmp_path: Path) -> None:
    store = Store.open(tmp_path, owner="me")
    store.add_job(job())
    with pytest.raises(JobExistsError, match="job one exists"):
        store.add_job(job(created=9.0))
    assert store.jobs() == [job()]
    assert len(store.history("one")) == 1


def test_store_jobs_come_oldest_first(tmp_path: Path) -> None:
    store = Store.open(tmp_path, owner="me")
    for name, created in (("b", 2.0), ("c", 3.0), ("a", 1.0)):
        store.add_job(job(name, created))
    assert [record.id for record in store.jobs()] == ["a", "b", "c"]


def test_store_changes_of_state_set_start_end_and_error(tmp_path: Path) -> None:
    store = Store.open(tmp_path, owner="me")
    store.add_job(job())
    error = JobError(type="ValueError", message="boom", worker=1, stage=1, step=3, log="logs/worker-1.log")
    store.change_state("one", change(JobState.STARTING, 2.0))
    store.change_state("one", change(JobState.RUNNING, 3.0))
    store.change_state("one", change(JobState.FAILED, 4.0), error=error)
    record = store.job("one")
    assert record is not None
    assert (record.started, record.ended, record.error, record.state) == (2.0, 4.0, error, JobState.FAILED)
    assert [entry.state for entry in store.history("one")] == ["QUEUED", "STARTING", "RUNNING", "FAILED"]


def test_store_step_comes_back_whole_and_moves_the_job_on(tmp_path: Path) -> None:
    store = Store.open(tmp_path, owner="me")
    store.add_job(job())
    store.add_step("one", step(1))
    store.add_step("one", step(2, loss=None))
    assert store.steps("one") == [step(1), step(2, loss=None)]
    assert store.steps("one", last=1) == [step(2, loss=None)]
    record = store.job("one")
    assert record is not None
    assert (record.step, record.epoch, record.loss) == (2, 1, None)


def test_store_counts_the_steps_that_were_skipped_and_gives_them_back_whole(tmp_path: Path) -> None:
    store = Store.open(tmp_path, owner="me")
    store.add_job(job())
    steps = [overflow(1), replace(step(2), loss_scale=32768.0), overflow(3)]
    for each in steps:
        store.add_step("one", each)
    assert store.steps("one") == steps
    record = store.job("one")
    assert record is not None
    assert (record.step, record.skipped_steps, record.loss) == (3, 2, None)


def test_store_steps_make_the_lines_that_were_written_when_they_were_committed(tmp_path: Path) -> None:
    """A coordinator that starts writes steps.jsonl from the store where it finds it damaged."""
    store, files = Store.open(tmp_path, owner="me"), JobFiles.of(tmp_path, "one")
    store.add_job(job())
    files.create("{}")
    for each in (overflow(1), replace(step(2), loss_scale=32768.0), step(3)):
        store.add_step("one", each)
        files.append_step(each)
    path = files.folder / "steps.jsonl"
    written = path.read_bytes()
    path.write_bytes(written[:100])
    files.repair(store.steps("one"), [])
    assert path.read_bytes() == written


def test_store_step_committed_twice_is_an_error(tmp_path: Path) -> None:
    store = Store.open(tmp_path, owner="me")
    store.add_job(job())
    store.add_step("one", step(1))
    with pytest.raises(sqlite3.IntegrityError):
        store.add_step("one", step(1))
    assert store.steps("one") == [step(1)]


def test_store_evaluation_with_undefined_metric_comes_back(tmp_path: Path) -> None:
    store = Store.open(tmp_path, owner="me")
    store.add_job(job())
    evaluation = EvaluationRecord(
        step=5, split="validation", examples=3, loss=0.1, metrics=(("accuracy", 1.0), ("f1", None)), reason="no rows"
    )
    store.add_evaluation("one", evaluation)
    assert store.evaluations("one") == [evaluation]


def test_store_workers_are_replaced_and_come_by_number(tmp_path: Path) -> None:
    store = Store.open(tmp_path, owner="me")
    store.add_job(job())
    old = WorkerRecord(worker=7, stages=(7,), dp_rank=0, host="h", state="ended")
    new = [
        WorkerRecord(worker=w, stages=(w, w + 2), dp_rank=0, host="h", state="ready", pid=5, parameters=3)
        for w in (0, 1)
    ]
    store.set_workers("one", [old])
    store.set_workers("one", new)
    assert store.workers("one") == new


def test_store_view_tells_speed_and_time_left(tmp_path: Path) -> None:
    store = Store.open(tmp_path, owner="me")
    store.add_job(job())
    store.set_plan("one", total_steps=10, bubble_fraction=0.25)
    for number in (1, 2, 3, 4):
        store.add_step("one", step(number))
    view = store.view("one")
    assert view is not None
    assert view.record.bubble_fraction == 0.25
    assert view.examples_per_second == 16.0
    assert view.eta_seconds == 3.0
    assert store.view("none") is None


def test_store_read_only_sees_what_a_living_writer_wrote(tmp_path: Path) -> None:
    writer = Store.open(tmp_path, owner="me")
    writer.add_job(job())
    reader = Store.open_read_only(tmp_path)
    writer.set_waiting("one", reason="needs 2 slots", missing_slots=2)
    record = reader.job("one")
    assert record is not None
    assert (record.reason, record.missing_slots) == ("needs 2 slots", 2)
    with pytest.raises(sqlite3.OperationalError, match="readonly"):
        reader.add_job(job("two"))


def test_store_read_only_after_the_writer_closed_still_reads(tmp_path: Path) -> None:
    writer = Store.open(tmp_path, owner="me")
    writer.add_job(job())
    writer.close()
    assert [record.id for record in Store.open_read_only(tmp_path).jobs()] == ["one"]


def test_store_read_only_without_a_store_says_where_it_looked(tmp_path: Path) -> None:
    with pytest.raises(StoreError, match="holds no job store"):
        Store.open_read_only(tmp_path)


def test_store_open_garbage_file_says_so(tmp_path: Path) -> None:
    (tmp_path / "takt.db").write_text("this is no database" * 100)
    with pytest.raises(StoreError, match="cannot be opened for writing"):
        Store.open(tmp_path, owner="me")


def test_store_of_another_format_is_refused(tmp_path: Path) -> None:
    Store.open(tmp_path, owner="me").close()
    connection = sqlite3.connect(tmp_path / "takt.db")
    connection.execute("PRAGMA user_version=99")
    connection.close()
    with pytest.raises(StoreError, match="it has format 99, this program writes 4"):
        Store.open(tmp_path, owner="me")


def older_format(state_dir: Path, version: int) -> None:
    """Turn a store into one of an older format: the first keeps no times by stage, the second no loss scale."""
    connection = sqlite3.connect(state_dir / "takt.db")
    connection.execute("DROP TABLE lease")
    newer = [(4, "jobs", "priority"), (4, "jobs", "facts"), (4, "jobs", "start_step"), (4, "workers", "agent")]
    newer += [(3, "steps", "loss_scale"), (3, "jobs", "skipped_steps"), (2, "workers", "stage_busy_seconds")]
    for since, table, column in newer:
        if version < since:
            connection.execute(f"ALTER TABLE {table} DROP COLUMN {column}")
    connection.execute(f"PRAGMA user_version={version}")
    connection.commit()
    connection.close()


@pytest.mark.parametrize("version", [1, 2, 3])
def test_store_of_an_older_format_is_read_and_brought_up_to_date(version: int, tmp_path: Path) -> None:
    old = WorkerRecord(worker=0, stages=(0,), dp_rank=0, host="h", state="ended", busy_seconds=2.0)
    new = replace(old, stages=(0, 3), stage_busy_seconds=(0.5, 1.5), agent="h:1")
    store = Store.open(tmp_path, owner="me")
    store.add_job(job())
    store.add_step("one", step(1))
    store.set_workers("one", [old])
    before = store.jobs()
    store.close()
    older_format(tmp_path, version)
    reader = Store.open_read_only(tmp_path)
    assert (reader.workers("one"), reader.steps("one"), reader.jobs()) == ([old], [step(1)], before)
    store = Store.open(tmp_path, owner="me")
    assert (store.workers("one"), store.steps("one"), store.jobs()) == ([old], [step(1)], before)
    assert (before[0].priority, before[0].facts, before[0].start_step, before[0].skipped_steps) == (0, None, 0, 0)
    store.set_workers("one", [new])
    store.add_step("one", overflow(2))
    store.set_facts("one", '{"layers": 2}')
    store.set_start("one", 7)
    assert (store.workers("one"), store.steps("one", last=1)) == ([new], [overflow(2)])
    record = store.jobs()[0]
    assert (record.skipped_steps, record.facts, record.start_step) == (1, '{"layers": 2}', 7)
    store.add_job(replace(job("two", 2.0), priority=-3))
    assert store.jobs()[1].priority == -3
    store.close()
    Store.open(tmp_path, owner="me").close()  # once is enough


def test_store_waiting_is_not_said_of_a_job_that_has_ended(tmp_path: Path) -> None:
    store = Store.open(tmp_path, owner="me")
    store.add_job(job())
    store.change_state("one", change(JobState.CANCELLED, 2.0))
    store.set_waiting("one", reason="needs 2 slots", missing_slots=2)
    record = store.job("one")
    assert record is not None
    assert (record.reason, record.missing_slots) == ("now CANCELLED", 0)


def test_store_two_writers_wait_for_each_other(tmp_path: Path) -> None:
    first, second = Store.open(tmp_path, owner="me"), Store.open(tmp_path, owner="me")
    for number in range(10):
        first.add_job(job(f"f{number}", number))
        second.add_job(job(f"s{number}", number + 0.5))
    assert len(first.jobs()) == 20


WRITES: dict[str, Callable[[Store], object]] = {
    "state": lambda store: store.change_state("one", change(JobState.RUNNING, 2.0)),
    "waiting": lambda store: store.set_waiting("one", reason="needs 2 slots", missing_slots=2),
    "plan": lambda store: store.set_plan("one", total_steps=3, bubble_fraction=0.5),
    "facts": lambda store: store.set_facts("one", "{}"),
    "start": lambda store: store.set_start("one", 4),
    "step": lambda store: store.add_step("one", step(1)),
    "evaluation": lambda store: store.add_evaluation(
        "one", EvaluationRecord(step=1, split="validation", examples=3, loss=0.1, metrics=())
    ),
    "workers": lambda store: store.set_workers(
        "one", [WorkerRecord(worker=0, stages=(0,), dp_rank=0, host="h", state="ready")]
    ),
}


def everything(store: Store) -> object:
    return (store.view("one"), store.evaluations("one"), store.jobs())


@pytest.mark.parametrize("write", WRITES.values(), ids=WRITES)
def test_store_who_lost_a_job_writes_nothing_to_it(write: Callable[[Store], object], tmp_path: Path) -> None:
    first, second = (Store.open(tmp_path, owner=owner) for owner in ("me", "other"))
    first.add_job(job())
    assert second.take_over("one", owner="me")
    before = everything(second)
    with pytest.raises(LostError, match="job one belongs to another coordinator now"):
        write(first)
    assert everything(second) == before
    write(second)
    assert everything(second) != before


def test_store_job_is_taken_over_by_one_of_two(tmp_path: Path) -> None:
    Store.open(tmp_path, owner="dead").add_job(job())
    stores = [Store.open(tmp_path, owner=owner) for owner in ("b", "c")]
    stores[0].take_over("one", owner="me")
    assert [store.take_over("one", owner="b") for store in (stores[1], stores[1])] == [True, False]
    record = stores[0].job("one")
    assert record is not None
    assert record.owner == "c"


def test_store_who_lost_the_lease_writes_nothing_though_the_job_is_its_own(tmp_path: Path) -> None:
    first, second = (Store.open(tmp_path, owner=owner, needs_lease=True) for owner in ("me", "other"))
    assert first.take_lease(seen=None, now=1.0)
    first.beat("host:1", now=2.0)
    first.add_job(job())
    lease = first.lease()
    assert lease == Lease(epoch=1, owner="me", address="host:1", beat=2.0)
    assert not second.take_lease(seen=replace(lease, beat=1.0), now=3.0), "it has spoken since"
    assert second.take_lease(seen=lease, now=3.0)
    second.beat("host:2", now=4.0)
    before = everything(second)
    for write in (*WRITES.values(), lambda store: store.add_job(job("two")), lambda store: store.beat("", now=5.0)):
        with pytest.raises(LostError, match="taken the state folder over, which listens at host:2"):
            write(first)
    assert everything(second) == before
    assert second.lease() == Lease(epoch=2, owner="other", address="host:2", beat=4.0)


def test_store_nobody_takes_over_while_a_file_of_the_job_is_written(tmp_path: Path) -> None:
    first = Store.open(tmp_path, owner="me")
    first.add_job(job())
    order: list[str] = []

    def take_over() -> None:
        with closing(Store.open(tmp_path, owner="other")) as third:
            third.take_over("one", owner="me")
        order.append("taken over")

    thread = threading.Thread(target=take_over)
    with first.owned("one"):
        thread.start()
        thread.join(0.2)
        order.append("written")
    thread.join(10)
    assert order == ["written", "taken over"]
    with pytest.raises(LostError), first.owned("one"):
        raise AssertionError("it must not come so far")
