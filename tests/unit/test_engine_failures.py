"""What the engine refuses, and what it says of a failure."""

import math

import pytest
import torch

from stage_worker.engine.batch_source import DataError
from stage_worker.engine.commands import Command, Op, StepSetting
from stage_worker.engine.failure import CommandFailed, CommandOrderError, NonFiniteError
from stage_worker.engine.transport import PeerLostError
from stage_worker.models.microbatch import Microbatch
from tests.unit.engine_harness import WHOLE, Harness, Rows, command
from tests.unit.fake_transport import FakeTransport


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
        ((command(Op.FORWARD),), "activation of microbatch 0 at boundary 0 was computed but not passed on"),
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
    with pytest.raises(CommandFailed, match="the loss of microbatch 0 on stage 0 in step 1 is not finite") as caught:
        harness.run(*WHOLE, ends=True)
    assert isinstance(caught.value.cause, NonFiniteError)
    assert (caught.value.stage, caught.value.microbatch) == (0, 0)
    assert harness.engine.agreed.updates_applied == 0
    assert all(
        torch.equal(value, before[name]) for name, value in harness.weights().items() if "classifier" not in name
    )
