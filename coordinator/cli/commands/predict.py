"""takt predict"""

import os
from pathlib import Path
from typing import Annotated

import grpc
import typer
from takt.v1 import jobs_pb2 as pb

from coordinator.checkpoints import Checkpoint, find_checkpoint
from coordinator.choices import MalformedLines, SplitName, Task
from coordinator.cli.client import CallError, JobClient, connect
from coordinator.cli.console import print_json, print_line, print_remark, stderr
from coordinator.cli.exits import CliError, ExitCode
from coordinator.cli.folder import job_folder
from coordinator.cli.here import run_here
from coordinator.cli.model_folder import write_model
from coordinator.cli.options import (
    DEFAULT_STATE_DIR,
    JobId,
    NewJobId,
    Output,
    OutputFormat,
    StateDir,
)
from coordinator.cli.outcome import EXIT_CODES, outcome_line, watch
from coordinator.cli.summary import read_evaluations
from coordinator.files import JobFiles
from coordinator.job_id import check_job_id
from coordinator.local_facts import local_facts
from coordinator.planning import plan_job
from coordinator.spec import JobSpec, from_json, parse_spec, to_json

Rows = Annotated[
    SplitName, typer.Option("--split", metavar="SPLIT", help="Rows to predict, such as test; ax with a job of mnli.")
]
At = Annotated[
    str | None,
    typer.Option(
        "--coordinator",
        envvar="TAKT_COORDINATOR",
        metavar="HOST:PORT",
        help="Address of the coordinator that does the work; where it is not given, services are started here.",
    ),
]
Step = Annotated[int | None, typer.Option("--step", min=0, metavar="N", help="Checkpoint of step N, else the newest.")]


def command(
    *,
    job_id: JobId,
    split: Rows,
    step: Step = None,
    new_id: NewJobId = None,
    coordinator: At = None,
    state_dir: StateDir = DEFAULT_STATE_DIR,
    output: Output = OutputFormat.TABLE,
) -> ExitCode:
    """Predict the rows of a split with the model of a job, in the form of GLUE's submissions.

    A job of its own does it, in the layout of the job that has trained: at the coordinator that is named, which
    must share the state folder, else with services that are started here and stopped. It leaves
    STATE_DIR/jobs/ITS-ID/predictions-SPLIT.tsv, in the order of the file, and where the split has labels the
    task's metrics in eval.jsonl. Ctrl-C ends it with services that were started here; at a coordinator the job
    goes on.
    """
    if new_id is not None:
        check_job_id(new_id)
    state_dir = state_dir.resolve()
    folder = job_folder(state_dir, job_id)
    checkpoint = find_checkpoint(folder, step=step)
    if coordinator is not None:
        with connect(coordinator) as client:
            check_shared(client, job_id, state_dir=state_dir)
    model = state_dir / "exports" / f"{job_id}-step-{checkpoint.step}"
    export_model(checkpoint, model, spec=folder / "spec.json")
    spec = _predicting(from_json((folder / "spec.json").read_text()), model=model, split=split)
    if coordinator is not None:
        with connect(coordinator) as client:
            job = _attended(client, client.submit(to_json(spec), job_id=new_id).id)
    else:
        model_facts, data_facts = local_facts(spec)
        plan = plan_job(spec, model=model_facts, data=data_facts)
        job = run_here(plan, job_id=new_id, state_dir=state_dir, strict=False, console=stderr())
    print_remark(outcome_line(job))
    if job.state == pb.JOB_STATE_SUCCEEDED:
        _tell(job, trained=job_id, split=split, state_dir=state_dir, output=output)
    return EXIT_CODES.get(job.state, ExitCode.JOB_CANCELLED)


def check_shared(client: JobClient, job_id: str, *, state_dir: Path) -> None:
    """Check that the coordinator knows the job that has trained, as one with this state folder does.

    Raises:
        CliError: it does not; its workers would not find the model.
    """
    try:
        client.job(job_id)
    except CallError as error:
        if error.code is not grpc.StatusCode.NOT_FOUND:
            raise
        raise CliError(
            ExitCode.NOT_FOUND,
            f"job {job_id} is in {state_dir}, but the coordinator at {client.address} has no such job, so it has "
            "another state folder; name that with --state-dir, or leave --coordinator out",
        ) from error


def export_model(checkpoint: Checkpoint, model: Path, *, spec: Path) -> None:
    """Write the model, unless that was done for other predictions, or is while it is written here."""
    if not model.is_dir():
        try:
            write_model(checkpoint, model, spec=spec)
        except CliError:
            if not model.is_dir():
                raise


def _attended(client: JobClient, job_id: str) -> pb.Job:
    """Return the job when it has ended; somebody who does not want to wait for that is told how to go on."""
    try:
        return watch(client, job_id, on_change=lambda _: None)
    except KeyboardInterrupt:
        print_remark(f"job {job_id} goes on: takt wait {job_id} waits for its end, takt cancel {job_id} ends it")
        raise


def _predicting(trained: JobSpec, *, model: Path, split: SplitName) -> JobSpec:
    """Return the job that predicts with ``model`` what the job ``trained`` has learnt."""
    document = trained.model_dump(mode="json", by_alias=True)
    document["model"] |= {"pretrained": os.fspath(model), "config": None}
    document["predict"]["split"] = split
    document["data"]["malformed_lines"] = MalformedLines.REFUSE  # one that is left out would shift those behind it
    if (trained.data.task, split) == (Task.MNLI, SplitName.AX):
        document["data"]["task"] = Task.AX  # its labels are MNLI's, and found by their names
    return parse_spec(document)


def _tell(job: pb.Job, *, trained: str, split: SplitName, state_dir: Path, output: OutputFormat) -> None:
    files = JobFiles.of(state_dir, job.id)
    records = read_evaluations(files.folder)
    if not records:
        raise CliError(
            ExitCode.INVALID,
            f"job {job.id} left nothing in {state_dir}; what it predicted is in jobs/{job.id} of its coordinator's own "
            "state folder",
        )
    (record,) = records
    path = files.predictions(split)
    if output is OutputFormat.JSON:
        print_json({"id": job.id, "job": trained, "split": split, "file": os.fspath(path), "evaluation": record})
    else:
        print_line(f"{path}: {record['examples']} predictions")
