"""Spans of a worker's step: what the ledger keeps of them, and how a report carries them."""

import itertools

import pytest
import torch
from takt.v1 import commands_pb2 as pb

from stage_worker.engine.commands import Phase
from stage_worker.engine.exchange import Transfer
from stage_worker.engine.ledger import MAX_SPANS, Activity, Ledger, Part, Span
from stage_worker.engine.transport import Message, TransferKind
from stage_worker.spans import encode_spans


def test_ledger_keeps_each_activity_with_what_it_is_about_and_goes_back_to_what_was_before() -> None:
    ticks = itertools.count(0.0)
    ledger = Ledger(clock=lambda: next(ticks))
    with ledger.during(Activity.FORWARD, about=(2, 5)), ledger.during(Activity.WAIT_DATA):
        pass
    assert ledger.take_spans() == [
        Span(Activity.OTHER, None, 0.0, 1.0),
        Span(Activity.FORWARD, (2, 5), 1.0, 2.0),
        Span(Activity.WAIT_DATA, None, 2.0, 3.0),
        Span(Activity.FORWARD, (2, 5), 3.0, 4.0),
    ]
    assert ledger.take_spans() == []
    assert ledger.seconds()[Activity.FORWARD, 2] == 2.0


def test_waiting_for_an_action_is_put_down_to_the_worker_and_tells_the_action() -> None:
    ledger = Ledger(clock=itertools.count(0.0).__next__)
    with ledger.during(Activity.WAIT_GRADIENT, about=(1, 3)):
        pass
    assert ledger.seconds()[Activity.WAIT_GRADIENT, None] == 1.0
    assert ledger.take_spans()[1] == Span(Activity.WAIT_GRADIENT, (1, 3), 1.0, 2.0)


def test_part_lasts_until_the_next_one_or_the_end_of_the_activity() -> None:
    ledger = Ledger(clock=itertools.count(0.0).__next__)
    with ledger.during(Activity.BACKWARD, about=(0, 3)):  # from 1
        ledger.enter_part(Part.HEAD)  # 2
        ledger.enter_part(None)  # 3
        ledger.enter_part(Part.HEAD)  # 4
        ledger.enter_part(Part.LAYERS)  # 5
        ledger.enter_part(Part.EMBEDDINGS)  # 6
    with ledger.during(Activity.STEP):  # 7 to 8, then 9
        pass
    _, backward, _, update = ledger.take_spans()
    assert backward == Span(Activity.BACKWARD, (0, 3), 1.0, 7.0, embeddings=1.0, layers=1.0, head=2.0)
    assert update == Span(Activity.STEP, None, 8.0, 9.0)


def test_spans_that_nobody_takes_do_not_pile_up() -> None:
    ledger = Ledger(clock=lambda: 0.0)
    for _ in range(MAX_SPANS):
        with ledger.during(Activity.FORWARD, about=(0, 0)):
            pass
    assert len(ledger.take_spans()) == MAX_SPANS


def transfer(kind: TransferKind, *, boundary: int, is_sent: bool, start: float) -> Transfer:
    message = Message(
        phase=Phase.TRAIN, step=1, kind=kind, boundary=boundary, microbatch=4, shape=(2, 3, 4), dtype=torch.float32
    )
    return Transfer(message, 7, is_sent, start, start + 1.0, 96)


def test_report_has_all_spans_by_their_start() -> None:
    spans = encode_spans(
        [Span(Activity.STEP, None, 8.0, 9.0), Span(Activity.FORWARD, (1, 4), 1.0, 2.0, 0.25, 0.5, 0.125)],
        transfers=[transfer(TransferKind.ACTIVATION, boundary=1, is_sent=True, start=2.0)],
        reads=[(0.5, 0.75)],
        num_most=100,
    )
    read, forward, sent, update = spans
    assert (read.name, read.track, read.start, read.end) == ("read", pb.TRACK_DATA, 0.5, 0.75)
    assert not read.HasField("stage")
    assert (forward.name, forward.track, forward.stage, forward.microbatch) == ("F", pb.TRACK_COMPUTE, 1, 4)
    assert (forward.embeddings, forward.layers, forward.head) == (0.25, 0.5, 0.125)
    assert (sent.name, sent.track, sent.peer, sent.bytes) == ("activation", pb.TRACK_SEND, 7, 96)
    assert (update.name, update.HasField("stage"), update.HasField("microbatch")) == ("step", False, False)


@pytest.mark.parametrize(
    ("kind", "boundary", "stage"), [(TransferKind.ACTIVATION, 2, 2), (TransferKind.GRADIENT, 2, 3)]
)
@pytest.mark.parametrize("is_sent", [True, False])
def test_transfer_names_the_stage_whose_result_travels_at_both_ends(
    kind: TransferKind, boundary: int, stage: int, is_sent: bool
) -> None:
    """An activation is the output of the stage below a boundary, a gradient that of the input of the stage above."""
    (span,) = encode_spans(
        [], transfers=[transfer(kind, boundary=boundary, is_sent=is_sent, start=0.0)], reads=[], num_most=9
    )
    assert span.stage == stage
    assert span.track == (pb.TRACK_SEND if is_sent else pb.TRACK_RECEIVE)


def test_slivers_between_actions_and_empty_waits_are_left_out_but_no_longer_gap() -> None:
    done = [
        Span(Activity.OTHER, None, 0.0, 0.00005),
        Span(Activity.WAIT_SEND, None, 0.00005, 0.00005),
        Span(Activity.OTHER, None, 1.0, 1.5),
        Span(Activity.FORWARD, (0, 0), 1.5, 1.50001),
    ]
    names = [(span.name, span.start) for span in encode_spans(done, transfers=[], reads=[], num_most=9)]
    assert names == [("other", 1.0), ("F", 1.5)]


def test_of_too_many_spans_the_last_ones_are_told() -> None:
    done = [Span(Activity.FORWARD, (0, m), float(m), m + 0.5) for m in range(10)]
    assert [span.microbatch for span in encode_spans(done, transfers=[], reads=[], num_most=3)] == [7, 8, 9]
