"""The engine on one stage, with a transport that moves nothing."""

import math
from dataclasses import dataclass, field
from typing import Any

import pytest
import torch

from stage_worker.engine.commands import Command, Op, Phase, Shape, StepCommands, StepSetting
from stage_worker.engine.engine import Engine
from stage_worker.engine.failure import CommandFailed, CommandOrderError, NonFiniteError
from stage_worker.engine.learning_rate import LearningRate, LearningRateSchedule
from stage_worker.engine.ledger import Activity, Ledger
from stage_worker.engine.microbatch import DataError, Microbatch
from stage_worker.engine.optimizer import OptimizerName, OptimizerSettings
from stage_worker.engine.result import StepResult
from stage_worker.engine.transport import PeerLostError, TransferKind
from tests.unit.fake_transport import FakeTransport
from tests.unit.tiny_bert import load_tiny

RATE = LearningRate(base=0.1, schedule=LearningRateSchedule.LINEAR, warmup_fraction=0.0, total_steps=4)
SGD = OptimizerSettings(name=OptimizerName.SGD, learning_rate=RATE, weight_decay=0.0, max_grad_norm=0.0)


@dataclass
class Rows:
    """Random rows; microbatch m has labels m % 2."""

    asked: list[int] = field(default_factory=list)
    width: int | None = None

    def get(self, setting: StepSetting, microbatch: int) -> Microbatch:
        self.asked.append(microbatch)
        shape = setting.microbatches[microbatch]
        generator = torch.Generator().manual_seed(microbatch + 100 * setting.step)
        ids_BL = torch.randint(5, 45, (shape.rows, self.width or shape.width), generator=generator)
        labels_B = torch.full((shape.rows,), microbatch % 2)
        return Microbatch(tuple(range(shape.rows)), ids_BL, torch.zeros_like(ids_BL), torch.ones_like(ids_BL), labels_B)


@dataclass
class Harness:
    """An engine of one of two stages, or of the only one."""

    stage: int = 0
    pp: int = 1
    transport: FakeTransport = field(default_factory=FakeTransport)
    rows: Rows = field(default_factory=Rows)
    ledger: Ledger = field(default_factory=Ledger)
    done: list[tuple[Op, int]] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.model = load_tiny(stage=self.stage, pp=self.pp)
        self.engine = Engine(
            self.model,
            optimizer=SGD,
            seed=0,
            dp=1,
            dp_rank=0,
            transport=self.transport,
            batches=self.rows,
            ledger=self.ledger,
            on_command=lambda command, seq: self.done.append((command.op, seq)),
        )

    def run(self, *commands: Command, ends: bool = False, first_seq: int = 1, **changes: Any) -> StepResult | None:
        return self.engine.run(StepCommands(setting(**changes), first_seq, commands, ends))

    def weights(self) -> dict[str, torch.Tensor]:
        return {name: tensor.clone() for name, tensor in self.model.state(self.stage).items()}


def setting(
    *, phase: Phase = Phase.TRAIN, step: int = 1, shapes: tuple[Shape, ...] = (Shape(2, 5), Shape(3, 4)), rows: int = 5
) -> StepSetting:
    return StepSetting(phase=phase, split="train", step=step, denominator=rows, microbatches=shapes)


def command(op: Op, *, stage: int = 0, microbatch: int = 0, peer: int = 0) -> Command:
    return Command(op, stage, microbatch, peer)


WHOLE = (
    command(Op.FORWARD),
    command(Op.BACKWARD),
    command(Op.FORWARD, microbatch=1),
    command(Op.BACKWARD, microbatch=1),
    command(Op.REDUCE),
    command(Op.STEP),
)


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
    assert (harness.engine.updates_applied, harness.engine.in_flight) == (1, 0)


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


@pytest.mark.parametrize(
    ("commands", "text"),
    [
        ((command(Op.BACKWARD),), "microbatch 0 is not in flight on stage 0"),
        ((command(Op.FORWARD), command(Op.FORWARD)), "microbatch 0 is in flight on stage 0 already"),
        ((command(Op.FORWARD, stage=3),), r"stage 3 is not here; here are \[0\]"),
        ((command(Op.FORWARD, microbatch=2),), "the step has 2 microbatches"),
        ((command(Op.SAVE),), "SAVE is the executor's to obey"),
        ((command(Op.STOP),), "STOP is the executor's to obey"),
    ],
)
def test_engine_command_out_of_order_is_refused(commands: tuple[Command, ...], text: str) -> None:
    with pytest.raises(CommandFailed, match=text) as caught:
        Harness().run(*commands)
    assert isinstance(caught.value.cause, CommandOrderError)


@pytest.mark.parametrize(
    ("commands", "text"),
    [
        ((command(Op.SEND_ACTIVATION),), "there is no activation of microbatch 0 to send"),
        ((command(Op.FORWARD), command(Op.BACKWARD)), "no receive was posted for the gradient of microbatch 0"),
        ((command(Op.RECV_GRADIENT), command(Op.RECV_GRADIENT)), "the receive of microbatch 0 is posted already"),
        ((command(Op.RECV_GRADIENT),), "gradient of microbatch 0 at boundary 0 was received but not used"),
        ((command(Op.FORWARD),), "activation of microbatch 0 at boundary 0 was computed but not sent"),
        ((command(Op.FORWARD), command(Op.SEND_ACTIVATION)), "1 microbatches are in flight at the end of the step"),
    ],
)
def test_engine_transfer_out_of_order_is_refused(commands: tuple[Command, ...], text: str) -> None:
    harness = Harness(stage=0, pp=2, transport=FakeTransport(arriving=torch.ones(2, 5, 16)))
    with pytest.raises(CommandFailed, match=text):
        harness.run(*commands, ends=True)


def test_engine_second_step_before_the_first_ends_is_refused() -> None:
    harness = Harness()
    harness.run(*WHOLE[:2])
    with pytest.raises(CommandFailed, match="step 2 began before step 1 ended"):
        harness.run(*WHOLE[:2], step=2)


def test_engine_failure_says_where_and_keeps_the_cause() -> None:
    harness = Harness()

    def explode(setting: StepSetting, microbatch: int) -> Microbatch:
        raise ValueError("boom")

    harness.rows.get = explode  # type: ignore[method-assign]
    with pytest.raises(CommandFailed) as caught:
        harness.run(command(Op.FORWARD, microbatch=1), step=6)
    failure = caught.value
    assert (failure.step, failure.stage, failure.microbatch) == (6, 0, 1)
    assert failure.__cause__ is failure.cause
    assert repr(failure.cause) == "ValueError('boom')"
    assert str(failure) == "step 6, forward, stage 0, microbatch 1: ValueError: boom"


def test_engine_lost_peer_is_the_cause() -> None:
    harness = Harness(stage=1, pp=2, transport=FakeTransport(arriving=None))
    with pytest.raises(CommandFailed, match="worker 0 closed its connection") as caught:
        harness.run(command(Op.RECV_ACTIVATION, stage=1), command(Op.FORWARD, stage=1))
    assert isinstance(caught.value.cause, PeerLostError)


def test_engine_rows_of_another_width_are_refused() -> None:
    harness = Harness(rows=Rows(width=7))
    with pytest.raises(CommandFailed, match=r"has shape \(2, 7\), announced was \(2, 5\)") as caught:
        harness.run(command(Op.FORWARD))
    assert isinstance(caught.value.cause, DataError)


def test_engine_loss_that_is_not_finite_updates_nothing() -> None:
    harness = Harness()
    harness.model.parameters(0)["classifier.bias"].data.fill_(math.nan)
    before = harness.weights()
    with pytest.raises(CommandFailed, match="the loss of microbatch 0 in step 1 is not finite") as caught:
        harness.run(*WHOLE, ends=True)
    assert isinstance(caught.value.cause, NonFiniteError)
    assert (caught.value.stage, caught.value.microbatch) == (0, 0)
    assert harness.engine.updates_applied == 0
    assert all(
        torch.equal(value, before[name]) for name, value in harness.weights().items() if "classifier" not in name
    )


def test_engine_ledger_assigns_every_instant_to_what_was_done() -> None:
    """The clock ticks once a look, so each activity's share is the number of times it was entered."""
    ticks = iter(range(1000))
    switches: list[Activity] = []
    ledger = Ledger(clock=lambda: float(next(ticks)), on_switch=lambda activity, since: switches.append(activity))
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
        Activity.STEP,
        Activity.REDUCE,
        Activity.STEP,
        Activity.WAIT_SEND,
    ]
    seconds = ledger.seconds()
    assert sum(seconds) == next(ticks) - 1
    assert seconds[Activity.FORWARD] == 2
