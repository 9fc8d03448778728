"""Workers that must tell the same of a step, and what becomes of a run in which they do not."""

import pytest
from takt.v1 import commands_pb2, data_pb2

from coordinator.decode import reported_of
from coordinator.events import Disconnected, Ended, EndKind, Event, ItemKind, Reported, StepResult
from coordinator.records import JobState
from tests.unit.run_script import Script, final_change, setting


def told(
    number: int, worker: int, *, skipped: bool = False, loss_scale: float = 65536.0, learning_rate: float = 0.25
) -> Reported:
    result = StepResult(worker=worker, skipped=skipped, loss_scale=loss_scale, learning_rate=learning_rate)
    return Reported(ItemKind.TRAIN, number, result)


def test_run_in_which_all_workers_skip_a_step_commits_it() -> None:
    script = Script(setting(dp=2))
    script.make_ready()
    assert script.feed(*(told(1, worker, skipped=True) for worker in range(4)))[-1] == "commit 1 of 0,1,2,3"


@pytest.mark.parametrize(
    ("figure", "differing", "others", "own"),
    [
        ("skipped", told(1, 2, skipped=True), "false", "true"),
        ("loss_scale", told(1, 2, loss_scale=32768.0), "65536.0", "32768.0"),
        ("learning_rate", told(1, 2, learning_rate=0.125), "0.25", "0.125"),
    ],
)
def test_run_whose_workers_tell_different_figures_of_a_step_fails_naming_both_sides(
    figure: str, differing: Reported, others: str, own: str
) -> None:
    script = Script(setting(dp=2))
    script.make_ready()
    # The one that differs reports first: the order of arrival decides nothing.
    reports = [differing, *(told(1, worker) for worker in (3, 0, 1))]
    assert script.feed(*reports) == [f"release {worker} 1" for worker in range(4)]
    ends: list[Event] = []
    for worker in range(4):
        ends += [Ended(worker, EndKind.RELEASED), Disconnected(worker)]
    change = final_change(script, *ends)
    assert (change.state, change.step) == (JobState.FAILED, 0)
    assert change.error is not None
    assert (change.error.type, change.error.step) == ("protocol", 1)
    agreeing = "worker 0 (stage 0) on h0, worker 1 (stage 1) on h1, worker 3 (stage 1) on h3"
    assert change.error.message == (
        f"the workers disagree on {figure} of step 1: {others} on {agreeing}; {own} on worker 2 (stage 0) on h2"
    )


def test_run_in_which_one_worker_alone_tells_a_loss_scale_fails() -> None:
    script = Script(setting())
    script.make_ready()
    plain = Reported(ItemKind.TRAIN, 1, StepResult(worker=0, learning_rate=0.25))
    assert script.feed(plain, told(1, 1)) == ["release 0 1", "release 1 1"]


def test_run_compares_the_figures_of_one_step_only() -> None:
    script = Script(setting(total_steps=2, evaluation_steps=1))
    script.make_ready()
    script.feed(told(1, 0, skipped=True), told(1, 1, skipped=True))
    committed = script.feed(told(2, 0, loss_scale=32768.0), told(2, 1, loss_scale=32768.0))
    assert "commit 2 of 0,1" in committed


def test_reported_of_an_fp16_step_has_its_scale_and_of_others_none() -> None:
    skipped = commands_pb2.StepReport(
        phase=data_pb2.PHASE_TRAIN, step=3, learning_rate=0.5, skipped=True, loss_scale=65536.0
    )
    result = reported_of(1, skipped).result
    assert (result.skipped, result.loss_scale, result.grad_norm, result.learning_rate) == (True, 65536.0, None, 0.5)
    plain = commands_pb2.StepReport(phase=data_pb2.PHASE_TRAIN, step=3, grad_norm=2.0)
    assert reported_of(1, plain).result.loss_scale is None
