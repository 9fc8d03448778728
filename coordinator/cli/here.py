"""Jobs on this machine: services of their own are started for them, they are watched, and all are stopped."""

from collections.abc import Iterator, Sequence
from pathlib import Path

from rich.console import Console
from takt.v1 import jobs_pb2 as pb

from coordinator.cli.attended import Attendant, InterruptedByUserError
from coordinator.cli.client import connect
from coordinator.cli.exits import CliError, ExitCode
from coordinator.cli.interrupts import Interrupts
from coordinator.cli.local import local_supervisor, start_services
from coordinator.cli.progress import open_progress
from coordinator.planning import JobPlan
from coordinator.spec import to_json

STOP_SECONDS = 1.5
"""What each of agents, coordinator and data service gets to stop. Three times this, `CANCEL_SECONDS` and two
calls of `CALL_SECONDS` stay below the ten seconds in which everything is gone after Ctrl-C."""
CALL_SECONDS = 1.0
"""Deadline of a call to our own coordinator; one that is missed is made again."""


def run_here(plan: JobPlan, *, job_id: str | None, state_dir: Path, strict: bool, console: Console) -> pb.Job:
    """Carry out a job whose every check has passed; return it as it ended, or as it was when it was stopped.

    The first Ctrl-C (or SIGTERM) cancels the job and stops everything, a second one kills at once.

    Args:
        plan: of the job.
        job_id: id to give it; one is made up where there is none.
        state_dir: absolute.
        strict: send one command at a time.
        console: told of the progress.

    Raises:
        CliError: interrupted before the job was submitted, or a service could not be started.
    """
    (job,) = run_all_here([plan], job_id=job_id, state_dir=state_dir, strict=strict, console=console)
    return job


def run_all_here(
    plans: Sequence[JobPlan], *, job_id: str | None = None, state_dir: Path, strict: bool = False, console: Console
) -> Iterator[pb.Job]:
    """Carry out jobs of as many workers one after the other with the same services; yield each as ``run_here`` does.

    Raises:
        CliError: as ``run_here``.
    """
    num_workers = plans[0].topology.num_workers
    with Interrupts() as interrupts:
        supervisor = local_supervisor(state_dir, interrupts)
        try:
            console.print(f"starting {num_workers} workers; service logs in {supervisor.log_dir}", soft_wrap=True)
            address, _ = start_services(
                supervisor, state_dir=state_dir, num_workers=num_workers, strict=strict, embedded=True
            )
            attendant = Attendant(interrupts, tend=supervisor.tend)
            with connect(address, call_seconds=CALL_SECONDS) as client:
                for plan in plans:
                    job = client.submit(
                        to_json(plan.spec),
                        job_id=job_id,
                        model=plan.model.message(),
                        data=plan.data.message(),
                        pause=attendant.pause,
                    )
                    with open_progress(console) as progress:
                        ended = attendant.follow(client, job.id, show=progress.show)
                    yield ended
        except InterruptedByUserError:
            raise CliError(ExitCode.JOB_CANCELLED, "interrupted before the job was submitted") from None
        finally:
            supervisor.stop(grace_seconds=STOP_SECONDS, should_kill=lambda: interrupts.count > 1)
