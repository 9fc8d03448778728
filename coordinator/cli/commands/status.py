"""takt status"""

from coordinator.cli.console import print_json, stdout
from coordinator.cli.documents import job_record
from coordinator.cli.exits import ExitCode
from coordinator.cli.options import DEFAULT_STATE_DIR, Coordinator, JobId, Output, OutputFormat, StateDir
from coordinator.cli.source import open_source
from coordinator.cli.tables import show_job


def command(
    *,
    job_id: JobId,
    coordinator: Coordinator = None,
    state_dir: StateDir = DEFAULT_STATE_DIR,
    output: Output = OutputFormat.TABLE,
) -> ExitCode:
    """Show one job.

    Without --coordinator, and where none answers on this machine, the state folder is read.
    """
    with open_source(coordinator=coordinator, state_dir=state_dir, job_id=job_id) as source:
        job = source.job(job_id)
    if output is OutputFormat.JSON:
        print_json(job_record(job))
    else:
        show_job(stdout(), job)
    return ExitCode.SUCCESS
