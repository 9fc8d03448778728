"""takt cancel"""

from coordinator.cli.client import connect
from coordinator.cli.console import print_json, print_line
from coordinator.cli.documents import job_record
from coordinator.cli.exits import ExitCode
from coordinator.cli.options import DEFAULT_COORDINATOR, Coordinator, JobId, Output, OutputFormat
from coordinator.cli.outcome import outcome_line


def command(*, job_id: JobId, coordinator: Coordinator = None, output: Output = OutputFormat.TABLE) -> ExitCode:
    """Ask a job to end.

    The job stops at its next step boundary, or is killed 15 s later. The command does not wait for that
    (see 'takt wait'): it exits 0 once the coordinator has taken the request down, also where the job has
    already ended.
    """
    with connect(coordinator or DEFAULT_COORDINATOR) as client:
        job = client.cancel(job_id)
    if output is OutputFormat.JSON:
        print_json(job_record(job))
    else:
        print_line(outcome_line(job))
    return ExitCode.SUCCESS
