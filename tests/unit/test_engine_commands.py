"""What the engine does on one stage, with a transport that moves nothing."""

import pytest
import torch

from stage_worker.engine.commands import Op, Phase, Shape
from stage_worker.engine.ledger import Activity, Ledger
from stage_worker.engine.transport import TransferKind
from tests.unit.engine_harness import WHOLE, Harness, command
from tests.unit.fake_transport import FakeTransport


def test_engine_tells_the_result_where_commands_end_the_step() -> None:
    harness = Harness()
    assert harness.run(*WHOLE[:4]) is None
    result = harness.run(*WHOLE[4:], ends=True, first_seq=5)
    assert result is not None
    assert (result.phase, result.step, result.last_seq) == (Phase.TRAIN, 1, 6)
    assert result.learning_rate == 0.1
    assert result.peak_in_flight == 1
    assert [round(loss / rows, 1) for loss, rows in zip(result.loss_sums, (2, 3), strict=True)] == [0.7, 0.7]
    assert harness.done == [(each.op, seq) for seq, each in enumerate(WHOLE, start=1)]
    assert (harness.engine.agreed.updates_applied, harness.engine.in_flight) == (1, 0)


def test_engine_gradients_stay_until_the_step_command() -> None:
    harness = Harness()
    harness.run(*WHOLE[:5])
    parameters = harness.model.parameters(0)
    assert all(p.grad is not None for p in parameters.values())
    before = harness.weights()
    gradients = {name: p.grad.clone() for name, p in parameters.items()}
    harness.run(WHOLE[5], ends=True)
    for name, value in harness.weights().items():
        torch.testing.assert_close(value, before[name] - 0.1 * gradients[name])
    assert all(p.grad is None for p in parameters.values())


def test_engine_first_stage_sends_and_receives_what_commands_announce() -> None:
    harness = Harness(stage=0, pp=2, transport=FakeTransport(arriving=torch.ones(2, 5, 16)))
    result = harness.run(
        command(Op.RECV_GRADIENT, peer=1),
        command(Op.FORWARD),
        command(Op.SEND_ACTIVATION, peer=1),
        command(Op.BACKWARD),
        ends=True,
    )
    assert result is not None
    assert result.loss_sums == ()
    assert (result.sent_bytes, result.received_bytes) == (2 * 5 * 16 * 4, 2 * 5 * 16 * 4)
    tensor, message, peer = harness.transport.sent[0]
    assert (peer, message.kind, message.boundary, message.microbatch) == (1, TransferKind.ACTIVATION, 0, 0)
    assert message.shape == tensor.shape == (2, 5, 16)
    assert not tensor.requires_grad
    received, peer = harness.transport.received[0]
    assert (peer, received.kind, received.boundary) == (1, TransferKind.GRADIENT, 0)
    assert harness.transport.flushes == 1


def test_engine_last_stage_sends_the_gradient_of_its_input() -> None:
    harness = Harness(stage=1, pp=2, transport=FakeTransport(arriving=torch.ones(2, 5, 16)))
    harness.run(
        command(Op.RECV_ACTIVATION, stage=1),
        command(Op.FORWARD, stage=1),
        command(Op.BACKWARD, stage=1),
        command(Op.SEND_GRADIENT, stage=1),
        ends=True,
    )
    tensor, message, _ = harness.transport.sent[0]
    assert (message.kind, message.boundary, message.shape) == (TransferKind.GRADIENT, 0, (2, 5, 16))
    assert tensor.abs().sum() > 0


def test_engine_microbatch_without_rows_does_nothing() -> None:
    harness = Harness(stage=0, pp=2)
    result = harness.run(
        command(Op.RECV_GRADIENT),
        command(Op.FORWARD),
        command(Op.SEND_ACTIVATION),
        command(Op.BACKWARD),
        ends=True,
        shapes=(Shape(0, 0),),
    )
    assert result is not None
    assert (harness.rows.asked, harness.transport.sent, harness.transport.received) == ([], [], [])
    assert (result.sent_bytes, result.peak_in_flight) == (0, 0)


def test_engine_last_stage_reports_zero_for_microbatches_without_rows() -> None:
    harness = Harness()
    empty = (Shape(0, 0), Shape(1, 4), Shape(0, 0))
    result = harness.run(
        *(command(op, microbatch=m) for m in range(3) for op in (Op.FORWARD, Op.BACKWARD)), ends=True, shapes=empty
    )
    assert result is not None
    assert [loss > 0 for loss in result.loss_sums] == [False, True, False]


def test_engine_evaluation_gives_outputs_and_leaves_the_open_step_alone() -> None:
    plain, mixed = Harness(), Harness()
    for harness in (plain, mixed):
        harness.run(*WHOLE[:3])
    evaluated = mixed.run(
        command(Op.FORWARD),
        command(Op.FORWARD, microbatch=1),
        ends=True,
        phase=Phase.EVALUATE,
        shapes=(Shape(1, 9), Shape(2, 3)),
    )
    for harness in (plain, mixed):
        harness.run(*WHOLE[3:], ends=True)
    assert evaluated is not None
    assert [(row.row_id, row.label, len(row.outputs)) for row in evaluated.rows] == [(0, 0, 2), (0, 1, 2), (1, 1, 2)]
    assert (evaluated.grad_norm, evaluated.peak_in_flight, evaluated.learning_rate) == (None, 0, 0.0)
    assert all(torch.equal(value, plain.weights()[name]) for name, value in mixed.weights().items())


def test_engine_evaluation_keeps_no_graph() -> None:
    harness = Harness(stage=0, pp=2)
    harness.run(command(Op.FORWARD), command(Op.SEND_ACTIVATION), ends=True, phase=Phase.EVALUATE)
    tensor, _, _ = harness.transport.sent[0]
    assert tensor.grad_fn is None
    assert harness.engine.in_flight == 0


def test_engine_ledger_assigns_every_instant_to_what_was_done(monkeypatch: pytest.MonkeyPatch) -> None:
    """The clock ticks once a look, so each activity's share is the number of times it was entered."""
    ticks = iter(range(1000))
    switches: list[Activity] = []
    ledger = Ledger(clock=lambda: float(next(ticks)), on_switch=lambda account, since: switches.append(account[0]))
    monkeypatch.setattr(ledger, "enter_part", lambda part: None)  # looks at the clock too
    harness = Harness(stage=1, pp=2, transport=FakeTransport(arriving=torch.ones(2, 5, 16)), ledger=ledger)
    harness.run(
        command(Op.RECV_ACTIVATION, stage=1),
        command(Op.FORWARD, stage=1),
        command(Op.BACKWARD, stage=1),
        command(Op.SEND_GRADIENT, stage=1),
        command(Op.REDUCE),
        command(Op.STEP),
        ends=True,
    )
    assert [activity for activity in switches if activity is not Activity.OTHER] == [
        Activity.WAIT_DATA,
        Activity.FORWARD,  # the mask
        Activity.WAIT_ACTIVATION,
        Activity.FORWARD,
        Activity.BACKWARD,
        Activity.REDUCE,
        Activity.STEP,
        Activity.REDUCE,
        Activity.STEP,
        Activity.WAIT_SEND,
    ]
    seconds = ledger.seconds()
    assert sum(seconds.values()) == next(ticks) - 1
    assert sum(passed for (activity, _), passed in seconds.items() if activity is Activity.FORWARD) == 2
