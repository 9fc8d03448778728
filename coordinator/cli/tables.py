"""Jobs and slots as text for people."""

from datetime import datetime

from rich.console import Console, Group, RenderableType
from rich.table import Table
from rich.text import Text
from takt.v1 import jobs_pb2 as pb

from coordinator.cli.documents import state_name
from coordinator.cli.outcome import has_ended

_COLOURS = {
    pb.JOB_STATE_RUNNING: "cyan",
    pb.JOB_STATE_SUCCEEDED: "green",
    pb.JOB_STATE_FAILED: "red",
    pb.JOB_STATE_CANCELLED: "yellow",
    pb.JOB_STATE_CANCELLING: "yellow",
    pb.JOB_STATE_RECOVERING: "yellow",
}
_FOLDED = frozenset({"REASON", "HOST", "JOB", "STAGES", "METRICS"})
"""Columns that go on in the next line where the terminal is narrow; the others are short."""


def state_text(state: pb.JobState) -> Text:
    """Return a state's name in its colour."""
    return Text(state_name(state), style=_COLOURS.get(state, ""))


def duration(seconds: float) -> str:
    """Return seconds as ``12.3s``, ``4m05s`` or ``2h03m``."""
    if seconds < 60:
        return f"{seconds:.1f}s"
    minutes, rest = divmod(round(seconds), 60)
    return f"{minutes}m{rest:02d}s" if minutes < 60 else f"{minutes // 60}h{minutes % 60:02d}m"


def local_time(seconds: float) -> str:
    """Return seconds since the Unix epoch as local time."""
    return datetime.fromtimestamp(seconds).astimezone().strftime("%Y-%m-%d %H:%M:%S")


def steps_text(job: pb.Job) -> str:
    """Return ``step/total``, with ``?`` for a total that is not known."""
    return f"{job.step}/{job.total_steps if job.HasField('total_steps') else '?'}"


def progress_text(job: pb.Job) -> str:
    """Return ``step/total``, and how many of the steps so far left the weights as they were, if any did."""
    return f"{steps_text(job)} ({job.skipped_steps} skipped)" if job.skipped_steps else steps_text(job)


def plain_table(*columns: str) -> Table:
    """Return a table without lines, for terminals and for `awk` alike."""
    table = Table(box=None, pad_edge=False, header_style="bold", padding=(0, 2, 0, 0))
    for column in columns:
        table.add_column(column, no_wrap=column not in _FOLDED, overflow="fold")
    return table


def show_jobs(console: Console, jobs: list[pb.Job]) -> None:
    """Print one line a job; where the terminal is narrow a reason is cut, and `takt status` tells all of it."""
    table = plain_table("ID", "STATE", "STEP", "LOSS", "CREATED")
    table.add_column(_cut("REASON"))
    for job in jobs:
        loss = f"{job.loss:.4f}" if job.HasField("loss") else "-"
        table.add_row(job.id, state_text(job.state), steps_text(job), loss, local_time(job.created), _cut(job.reason))
    console.print(table if jobs else "no jobs")


def show_job(console: Console, job: pb.Job) -> None:
    """Print everything about one job."""
    parts: list[RenderableType] = [_facts(job)]
    if job.workers:
        parts += ["", _workers(job)]
    if job.HasField("error"):
        parts += ["", _error(job.error)]
    if job.history:
        parts += ["", _history(job)]
    console.print(Group(*parts))


def show_slots(console: Console, slots: list[pb.Slot]) -> None:
    """Print one line a slot."""
    table = plain_table("HOST", "SLOT", "DEVICE", "PID", "STATE", "JOB", "WORKER", "STAGES", "PARAMETERS", "METRICS")
    for slot in slots:
        table.add_row(
            slot.host,
            str(slot.slot),
            slot.device,
            str(slot.pid),
            slot.state,
            slot.job or "-",
            str(slot.worker) if slot.HasField("worker") else "-",
            _stages(slot.stages),
            f"{slot.parameters:,}" if slot.HasField("parameters") else "-",
            slot.metrics_address or "-",
        )
    console.print(table if slots else "no workers; start some with 'python -m stage_worker' or 'takt up --workers N'")


def _facts(job: pb.Job) -> Table:
    table = Table.grid(padding=(0, 2, 0, 0))
    rows: list[tuple[str, RenderableType | None]] = [
        ("job", job.id),
        ("name", job.name),
        ("state", state_text(job.state)),
        ("reason", job.reason),
        ("priority", str(job.priority) if job.priority else None),
        ("missing slots", str(job.missing_slots) if job.missing_slots else None),
        ("attempt", str(job.attempt)),
        ("step", f"{progress_text(job)}, epoch {job.epoch}"),
        ("began after", f"step {job.start_step}" if job.start_step else None),
        ("loss", f"{job.loss:.6f}" if job.HasField("loss") else None),
        ("speed", f"{job.examples_per_second:.1f} examples/s" if job.HasField("examples_per_second") else None),
        ("time left", duration(job.eta_seconds) if job.HasField("eta_seconds") and not has_ended(job) else None),
        ("created", local_time(job.created)),
        ("started", local_time(job.started) if job.HasField("started") else None),
        ("ended", local_time(job.ended) if job.HasField("ended") else None),
    ]
    for name, value in rows:
        if value is not None:
            table.add_row(Text(name, style="bold"), value)
    return table


def _workers(job: pb.Job) -> Table:
    table = plain_table("WORKER", "STAGES", "REPLICA", "HOST", "PID", "STATE", "PARAMETERS", "LOADED", "BUSY")
    for worker in job.workers:
        table.add_row(
            str(worker.worker),
            _stages(worker.stages),
            str(worker.dp_rank),
            worker.host,
            str(worker.pid or "-"),
            worker.state,
            f"{worker.parameters:,}" if worker.HasField("parameters") else "-",
            f"{worker.peak_bytes / 2**20:.0f} MiB" if worker.HasField("peak_bytes") else "-",
            busy_text(worker),
        )
    return table


def busy_text(worker: pb.JobWorker) -> str:
    """Return the share of its time that a worker spent computing, ``-`` before its first step."""
    total = worker.busy_seconds + worker.idle_seconds
    return f"{worker.busy_seconds / total:.0%}" if total > 0 else "-"


def error_place(error: pb.JobError) -> str:
    """Return where an error happened, for instance ``worker 1, stage 1, step 3``."""
    fields = [name for name in ("worker", "stage", "step") if error.HasField(name)]
    return ", ".join(f"{name} {getattr(error, name)}" for name in fields) or "no worker"


def _error(error: pb.JobError) -> Text:
    where = f" (log: {error.log})" if error.log else ""
    return Text(f"error on {error_place(error)}: {error.type}: {error.message}{where}", style="red")


def _history(job: pb.Job) -> Table:
    table = plain_table("TIME", "STATE", "ATTEMPT", "STEP", "REASON")
    for change in job.history:
        table.add_row(
            local_time(change.time), state_text(change.state), str(change.attempt), str(change.step), change.reason
        )
    return table


def _cut(text: str) -> Text:
    """Return text of one line, cut where there is no room for all of it."""
    return Text(text, no_wrap=True, overflow="ellipsis")


def _stages(stages: object) -> str:
    return ",".join(map(str, stages)) or "-"  # type: ignore[call-overload]
