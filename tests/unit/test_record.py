"""The memory that executor and agent share."""

import pytest

from stage_worker.engine.commands import Op
from stage_worker.engine.ledger import Activity, Ledger
from stage_worker.record import OPS, Record, RecordReader, RecordWriter


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
    assert sum(snapshot.seconds(5.0)) == 0.0


def test_record_second_mapping_of_the_descriptor_sees_the_writes(record: Record) -> None:
    clock = Clock()
    writer, reader = RecordWriter(record, clock=clock), RecordReader(Record(record.descriptor))
    writer.beat(peak_bytes=2**40 + 1)
    writer.set_loaded()
    writer.set_in_flight(3)
    writer.set_transferred(sent_bytes=10, received_bytes=20)
    clock.now = 1002.5
    writer.finish_command(Op.FORWARD, 7)
    writer.finish_command(Op.FORWARD, 8)
    snapshot = reader.read()
    assert snapshot.pulse == 1000.0
    assert snapshot.peak_bytes == 2**40 + 1
    assert snapshot.loaded
    assert snapshot.in_flight == 3
    assert (snapshot.sent_bytes, snapshot.received_bytes) == (10, 20)
    assert (snapshot.seq, snapshot.progressed) == (8, 1002.5)
    assert dict(zip(OPS, snapshot.commands, strict=True))[Op.FORWARD] == 2
    assert sum(snapshot.commands) == 2


def test_record_with_a_ledger_accounts_for_every_second_up_to_now(record: Record) -> None:
    clock = Clock()
    writer, reader = RecordWriter(record, clock=clock), RecordReader(record)
    ledger = Ledger(cells=writer.start(), on_switch=writer.switch, clock=clock)
    clock.now += 2.0
    ledger.enter(Activity.FORWARD)
    clock.now += 3.0
    with ledger.during(Activity.WAIT_GRADIENT):
        clock.now += 4.0
    clock.now += 0.5
    snapshot = reader.read()
    assert (snapshot.activity, snapshot.since) == (Activity.FORWARD, 1009.0)
    seconds = snapshot.seconds(clock.now)
    assert seconds[Activity.OTHER] == pytest.approx(2.0)
    assert seconds[Activity.FORWARD] == pytest.approx(3.5)
    assert seconds[Activity.WAIT_GRADIENT] == pytest.approx(4.0)
    assert sum(seconds) == pytest.approx(9.5)
    assert ledger.seconds() == pytest.approx(seconds)


def test_record_writer_that_died_within_a_change_is_still_read(record: Record) -> None:
    cells = RecordWriter(record).start()
    cells[Activity.STEP] = 1.5  # the switch that ends the change never comes
    assert RecordReader(record).read().ended_seconds[Activity.STEP] == 1.5


def test_ledger_cells_refuse_another_layout(record: Record) -> None:
    cells = RecordWriter(record).start()
    assert len(cells) == len(Activity)
    with pytest.raises(TypeError, match="fixed number"):
        cells.append(1.0)
    with pytest.raises(TypeError, match="fixed number"):
        del cells[0]
    with pytest.raises(IndexError):
        cells[len(Activity)]
