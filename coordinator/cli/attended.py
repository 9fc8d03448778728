"""A job that somebody at the terminal attends to: followed to its end, cancelled by Ctrl-C."""

import time
from collections.abc import Callable
from typing import Protocol

from takt.v1 import jobs_pb2 as pb

from coordinator.cli.client import CallError
from coordinator.cli.console import print_remark
from coordinator.cli.interrupts import Interrupts
from coordinator.cli.outcome import JobReader, watch

CANCEL_SECONDS = 3.0
"""What a job gets to reach a step boundary after Ctrl-C."""


class InterruptedByUserError(Exception):
    """The user asked to stop."""


class JobControl(JobReader, Protocol):
    """Who is asked: a `JobClient`."""

    def cancel(self, job_id: str, *, grace_seconds: float) -> pb.Job:
        """Ask a job to end, or raise `CallError`."""


class Attendant:
    """Pauses that look after the services and notice Ctrl-C.

    Args:
        interrupts: the signals so far.
        tend: looks after the services; called before every pause.
    """

    def __init__(self, interrupts: Interrupts, *, tend: Callable[[], None]) -> None:
        self._interrupts = interrupts
        self._tend = tend

    def pause(self, seconds: float) -> None:
        """Wait that long; raise `InterruptedByUserError` where the user asked to stop."""
        self._tend()
        self._interrupts.pause(seconds)
        if self._interrupts.count:
            raise InterruptedByUserError

    def follow(self, control: JobControl, job_id: str, *, show: Callable[[pb.Job], None]) -> pb.Job:
        """Return the job when it has ended.

        The first Ctrl-C cancels it. It is returned as it is where it has not ended `CANCEL_SECONDS` later, or
        at a second Ctrl-C.
        """
        last = pb.Job(id=job_id)

        def keep_and_show(job: pb.Job) -> None:
            last.CopyFrom(job)
            show(job)

        try:
            return watch(control, job_id, on_change=keep_and_show, pause=self.pause)
        except InterruptedByUserError:
            print_remark("stopping the job; press Ctrl-C again to kill it")
        give_up = time.monotonic() + CANCEL_SECONDS

        def pause_until_given_up(seconds: float) -> None:
            self._interrupts.pause(seconds)
            if self._interrupts.count > 1 or time.monotonic() > give_up:
                raise InterruptedByUserError

        try:
            control.cancel(job_id, grace_seconds=CANCEL_SECONDS)
            return watch(control, job_id, on_change=keep_and_show, pause=pause_until_given_up)
        except (InterruptedByUserError, CallError):
            return last
