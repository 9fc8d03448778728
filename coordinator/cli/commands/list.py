"""takt list"""

from coordinator.cli.console import print_json, stdout
from coordinator.cli.documents import job_summary
from coordinator.cli.exits import ExitCode
from coordinator.cli.options import DEFAULT_STATE_DIR, Coordinator, Output, OutputFormat, StateDir
from coordinator.cli.source import open_source
from coordinator.cli.tables import show_jobs


def command(
    *,
    coordinator: Coordinator = None,
    state_dir: StateDir = DEFAULT_STATE_DIR,
    output: Output = OutputFormat.TABLE,
) -> ExitCode:
    """List all jobs, the newest first.

    Without --coordinator, and where none answers on this machine, the state folder is read.
    """
    with open_source(coordinator=coordinator, state_dir=state_dir) as source:
        jobs = source.jobs()
    if output is OutputFormat.JSON:
        print_json({"jobs": [job_summary(job) for job in jobs]})
    else:
        show_jobs(stdout(), jobs)
    return ExitCode.SUCCESS
