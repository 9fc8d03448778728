"""What Ctrl-C does to a job that is followed, with signals sent to this process."""

import os
import signal
import time
from collections.abc import Iterator

import grpc
import pytest
from takt.v1 import jobs_pb2 as pb

from coordinator.cli import attended
from coordinator.cli.attended import Attendant, InterruptedByUserError
from coordinator.cli.client import CallError
from coordinator.cli.interrupts import Interrupts


class Job:
    """One job that runs until it is told otherwise."""

    def __init__(self, *, heeds_cancel: bool = True) -> None:
        self.now = pb.Job(id="j", state=pb.JOB_STATE_RUNNING, step=3)
        self.cancelled_with: list[float] = []
        self._heeds_cancel = heeds_cancel

    def job(self, job_id: str) -> pb.Job:
        return self.now

    def cancel(self, job_id: str, *, grace_seconds: float) -> pb.Job:
        self.cancelled_with.append(grace_seconds)
        if self._heeds_cancel:
            self.now = pb.Job(id="j", state=pb.JOB_STATE_CANCELLED, step=4)
        return self.now


@pytest.fixture
def interrupts() -> Iterator[Interrupts]:
    with Interrupts() as interrupts:
        yield interrupts


def interrupt(_job: pb.Job | None = None) -> None:
    os.kill(os.getpid(), signal.SIGINT)


def test_follow_without_a_signal_tends_the_services_and_returns_the_ended_job(interrupts: Interrupts) -> None:
    job, tended = Job(), []

    def tend() -> None:
        tended.append(True)
        job.now = pb.Job(id="j", state=pb.JOB_STATE_SUCCEEDED, step=5)

    followed = Attendant(interrupts, tend=tend).follow(job, "j", show=lambda _: None)
    assert (followed.state, followed.step) == (pb.JOB_STATE_SUCCEEDED, 5)
    assert tended == [True]
    assert job.cancelled_with == []


def test_follow_cancels_once_at_the_first_signal_and_returns_the_cancelled_job(interrupts: Interrupts) -> None:
    job, steps = Job(), []

    def show(seen: pb.Job) -> None:
        steps.append(seen.step)
        if len(steps) == 1:
            interrupt()

    followed = Attendant(interrupts, tend=lambda: None).follow(job, "j", show=show)
    assert (followed.state, steps) == (pb.JOB_STATE_CANCELLED, [3, 4])
    assert job.cancelled_with == [attended.CANCEL_SECONDS]


def test_follow_gives_up_a_job_that_does_not_end_in_time(
    interrupts: Interrupts, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(attended, "CANCEL_SECONDS", 0.1)
    job = Job(heeds_cancel=False)
    shown: list[pb.Job] = []

    def show(seen: pb.Job) -> None:
        shown.append(seen)
        if len(shown) == 1:
            interrupt()

    followed = Attendant(interrupts, tend=lambda: None).follow(job, "j", show=show)
    assert (followed.state, followed.step) == (pb.JOB_STATE_RUNNING, 3)


def test_follow_gives_up_at_once_at_the_second_signal(interrupts: Interrupts) -> None:
    began = time.monotonic()
    followed = Attendant(interrupts, tend=lambda: None).follow(Job(heeds_cancel=False), "j", show=interrupt)
    assert followed.state == pb.JOB_STATE_RUNNING
    assert time.monotonic() - began < attended.CANCEL_SECONDS


def test_follow_of_a_job_whose_coordinator_is_gone_at_the_signal_returns_what_was_last_seen(
    interrupts: Interrupts,
) -> None:
    class Gone(Job):
        def cancel(self, job_id: str, *, grace_seconds: float) -> pb.Job:
            raise CallError(grpc.StatusCode.UNAVAILABLE, "gone")

    followed = Attendant(interrupts, tend=lambda: None).follow(Gone(), "j", show=interrupt)
    assert followed.step == 3


def test_pause_raises_where_the_user_asked_to_stop_before(interrupts: Interrupts) -> None:
    attendance = Attendant(interrupts, tend=lambda: None)
    attendance.pause(0.001)
    interrupt()
    with pytest.raises(InterruptedByUserError):
        attendance.pause(30)
