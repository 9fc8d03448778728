"""The memory that executor and agent share."""

import itertools
import sys
import threading
import time

import pytest

from stage_worker.engine.commands import Op
from stage_worker.engine.ledger import Activity, Ledger
from stage_worker.record import MAX_STAGES, OPS, Record, RecordReader, RecordWriter


class Clock:
    """A clock that stands until it is moved."""

    def __init__(self) -> None:
        self.now = 1000.0

    def __call__(self) -> float:
        return self.now


@pytest.fixture
def record() -> Record:
    return Record.create()


def test_record_new_reads_as_nothing_done(record: Record) -> None:
    snapshot = RecordReader(record).read()
    assert (snapshot.pulse, snapshot.started, snapshot.seq, snapshot.loaded) == (0.0, 0.0, 0, False)
    assert sum(snapshot.seconds(5.0).values()) == 0.0
    assert dict(snapshot.in_flight) == {}
    assert snapshot.account == (Activity.OTHER, None)


def test_record_second_mapping_of_the_descriptor_sees_the_writes(record: Record) -> None:
    clock = Clock()
    writer, reader = RecordWriter(record, clock=clock), RecordReader(Record(record.descriptor))
    writer.start(stages=(3, 7))
    writer.beat(peak_bytes=2**40 + 1)
    writer.set_loaded()
    writer.set_in_flight({3: 2, 7: 1})
    writer.set_transferred(sent_bytes=10, received_bytes=20)
    clock.now = 1002.5
    writer.finish_command(Op.FORWARD, 7)
    writer.finish_command(Op.FORWARD, 8)
    snapshot = reader.read()
    assert snapshot.pulse == 1000.0
    assert snapshot.peak_bytes == 2**40 + 1
    assert snapshot.loaded
    assert snapshot.in_flight == {3: 2, 7: 1}
    assert (snapshot.sent_bytes, snapshot.received_bytes) == (10, 20)
    assert (snapshot.seq, snapshot.progressed) == (8, 1002.5)
    assert dict(zip(OPS, snapshot.commands, strict=True))[Op.FORWARD] == 2
    assert sum(snapshot.commands) == 2


def test_record_with_a_ledger_accounts_for_every_second_up_to_now(record: Record) -> None:
    clock = Clock()
    writer, reader = RecordWriter(record, clock=clock), RecordReader(record)
    ledger = Ledger(cells=writer.start(stages=(1, 6)), on_switch=writer.switch, clock=clock)
    clock.now += 2.0
    with ledger.during(Activity.FORWARD, about=(1, 0)):
        clock.now += 3.0
    ledger.enter(Activity.FORWARD, about=(6, 0))
    clock.now += 7.0
    with ledger.during(Activity.WAIT_GRADIENT):
        clock.now += 4.0
    clock.now += 0.5
    snapshot = reader.read()
    assert (snapshot.account, snapshot.since) == ((Activity.FORWARD, 6), 1016.0)
    seconds = snapshot.seconds(clock.now)
    expected = {
        (Activity.OTHER, None): 2.0,
        (Activity.FORWARD, 1): 3.0,
        (Activity.FORWARD, 6): 7.5,
        (Activity.WAIT_GRADIENT, None): 4.0,
    }
    assert {account: passed for account, passed in seconds.items() if passed} == expected
    assert ledger.seconds() == seconds


def test_record_read_while_it_is_written_is_of_one_moment(record: Record) -> None:
    """At every moment the seconds that have ended are those between the start and the last switch."""
    ticks = itertools.count(1.0)
    writer, reader = RecordWriter(record, clock=lambda: next(ticks)), RecordReader(record)
    ledger = Ledger(cells=writer.start(stages=(0, 1)), on_switch=writer.switch, clock=lambda: next(ticks))
    ledger.enter(Activity.FORWARD, about=(0, 0))
    beginning = reader.read()
    done = threading.Event()

    def write() -> None:
        while not done.is_set():
            for stage in (0, 1):
                with ledger.during(Activity.BACKWARD, about=(stage, 0)):
                    ledger.enter(Activity.WAIT_SEND)

    interval = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    thread = threading.Thread(target=write)
    thread.start()
    try:
        seen: dict[float, float] = {}
        while len(seen) < 10:
            snapshot = reader.read()
            seen[snapshot.since] = sum(snapshot.ended_seconds.values())
    finally:
        done.set()
        thread.join()
        sys.setswitchinterval(interval)
    for since, ended in seen.items():
        assert ended - sum(beginning.ended_seconds.values()) == since - beginning.since


def test_record_read_within_a_change_is_read_again(record: Record, monkeypatch: pytest.MonkeyPatch) -> None:
    clock = Clock()
    writer, reader = RecordWriter(record, clock=clock), RecordReader(record)
    cells = writer.start(stages=(0,))
    cells[Activity.OTHER, None] = 1.5
    pauses = []

    def end_the_change(seconds: float) -> None:
        pauses.append(seconds)
        writer.switch((Activity.FORWARD, 0), 1001.5)

    monkeypatch.setattr(time, "sleep", end_the_change)
    snapshot = reader.read()
    assert len(pauses) == 1
    assert (snapshot.account, snapshot.since) == ((Activity.FORWARD, 0), 1001.5)
    assert snapshot.ended_seconds[Activity.OTHER, None] == 1.5


def test_record_has_room_for_the_most_stages_and_no_more(record: Record) -> None:
    clock = Clock()
    writer, reader = RecordWriter(record, clock=clock), RecordReader(record)
    stages = range(1000, 1000 + 3 * MAX_STAGES, 3)
    ledger = Ledger(cells=writer.start(stages=stages), on_switch=writer.switch, clock=clock)
    for stage in stages:
        with ledger.during(Activity.WEIGHT_GRADIENT, about=(stage, 0)):
            clock.now += stage
    writer.set_in_flight({stages[-1]: 5})
    snapshot = reader.read()
    assert {stage: snapshot.ended_seconds[Activity.WEIGHT_GRADIENT, stage] for stage in stages} == {
        stage: float(stage) for stage in stages
    }
    assert sum(snapshot.ended_seconds.values()) == sum(stages)
    assert sum(snapshot.in_flight.values()) == snapshot.in_flight[stages[-1]] == 5
    with pytest.raises(ValueError, match="is to hold 65 stages, a record has room for 64"):
        RecordWriter(Record.create()).start(stages=range(65))


def test_record_of_a_stage_that_is_not_held_is_refused(record: Record) -> None:
    writer = RecordWriter(record)
    ledger = Ledger(cells=writer.start(stages=(2,)), on_switch=writer.switch)
    with pytest.raises(KeyError):
        ledger.enter(Activity.FORWARD, about=(0, 0))


def test_record_writer_that_died_within_a_change_is_still_read(record: Record) -> None:
    cells = RecordWriter(record).start(stages=(0,))
    cells[Activity.STEP, None] = 1.5  # the switch that ends the change never comes
    assert RecordReader(record).read().ended_seconds[Activity.STEP, None] == 1.5


def test_ledger_cells_cannot_be_taken_away(record: Record) -> None:
    cells = RecordWriter(record).start(stages=(0, 1))
    assert len(cells) == len(dict(cells)) == 3 * len(Activity)
    with pytest.raises(TypeError, match="fixed number"):
        del cells[Activity.STEP, None]
