"""takt list"""

from collections.abc import Sequence
from typing import Annotated

import typer
from takt.v1 import jobs_pb2 as pb

from coordinator.cli.console import print_json, print_remark, stdout
from coordinator.cli.documents import job_summary
from coordinator.cli.exits import ExitCode
from coordinator.cli.options import DEFAULT_STATE_DIR, Coordinator, Output, OutputFormat, StateDir
from coordinator.cli.source import JobSource, open_source
from coordinator.cli.tables import show_jobs
from coordinator.listing import PAGE_SIZE
from coordinator.records import JobState

States = Annotated[
    list[JobState] | None,
    typer.Option("--state", metavar="STATE", case_sensitive=False, help="Only jobs in this state; repeatable."),
]
Prefix = Annotated[str, typer.Option("--prefix", metavar="P", help="Only jobs whose name or id begins so.")]
Limit = Annotated[int | None, typer.Option("--limit", min=1, metavar="N", help="At most N jobs, else all.")]
Page = Annotated[str, typer.Option("--page", metavar="TOKEN", help="Go on behind the list that gave this token.")]


def command(
    *,
    states: States = None,
    prefix: Prefix = "",
    limit: Limit = None,
    page: Page = "",
    coordinator: Coordinator = None,
    state_dir: StateDir = DEFAULT_STATE_DIR,
    output: Output = OutputFormat.TABLE,
) -> ExitCode:
    """List all jobs, the newest first.

    Where --limit leaves some out, a token for the next page is told; jobs that come meanwhile do not move it.
    Without --coordinator, and where none answers on this machine, the state folder is read.
    """
    with open_source(coordinator=coordinator, state_dir=state_dir) as source:
        jobs, next_page = _read(source, states or [], prefix=prefix, limit=limit, page=page)
    if output is OutputFormat.JSON:
        print_json({"jobs": [job_summary(job) for job in jobs], "next_page": next_page or None})
    else:
        show_jobs(stdout(), jobs)
        if next_page:
            print_remark(f"there are more: --page {next_page}")
    return ExitCode.SUCCESS


def _read(
    source: JobSource, states: Sequence[JobState], *, prefix: str, limit: int | None, page: str
) -> tuple[list[pb.Job], str]:
    """Return as many jobs as are wanted, and the token of what follows them; empty where nothing does."""
    names = [f"JOB_STATE_{state.value}" for state in states]
    jobs: list[pb.Job] = []
    while True:
        size = PAGE_SIZE if limit is None else min(PAGE_SIZE, limit - len(jobs))
        request = pb.ListJobsRequest(states=names, prefix=prefix, page_size=size, page_token=page)
        response = source.jobs(request)
        jobs += response.jobs
        page = response.next_page_token
        if not page or len(jobs) == limit:
            return jobs, page
