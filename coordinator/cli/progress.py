"""Progress of a running job: a bar on a terminal, a line now and then elsewhere."""

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Protocol

from rich.console import Console
from rich.progress import BarColumn, Progress, TextColumn
from takt.v1 import jobs_pb2 as pb

from coordinator.cli.documents import state_name
from coordinator.cli.tables import duration, progress_text, state_text

LINE_SECONDS = 10.0
"""Time between two lines where there is no terminal and the state stays what it is."""


class ProgressView(Protocol):
    """Shows a job's progress."""

    def show(self, job: pb.Job) -> None:
        """Show how far ``job`` is."""

    def close(self) -> None:
        """Leave the screen to others."""


@contextmanager
def open_progress(console: Console) -> Iterator[ProgressView]:
    """Give the view that suits where ``console`` writes to."""
    view: ProgressView = BarProgress(console) if console.is_terminal else LineProgress(console)
    try:
        yield view
    finally:
        view.close()


class LineProgress:
    """Prints a line when the state changes, and every `LINE_SECONDS` while steps are done."""

    def __init__(self, console: Console, *, now: Callable[[], float] = time.monotonic) -> None:
        self._console = console
        self._now = now
        self._state: tuple[pb.JobState, str] | None = None
        self._step = 0
        self._printed = now()

    def show(self, job: pb.Job) -> None:
        """Print a line where it is due."""
        if (job.state, job.reason) != self._state:
            self._state = (job.state, job.reason)
            self._console.print(f"{state_name(job.state)}: {job.reason}", soft_wrap=True)
            self._printed = self._now()
        elif job.step != self._step and self._now() - self._printed >= LINE_SECONDS:
            self._step, self._printed = job.step, self._now()
            steps = f"{state_name(job.state)} step {progress_text(job)}"
            parts = [steps, loss_text(job), speed_text(job), eta_text(job)]
            self._console.print(", ".join(filter(None, parts)), soft_wrap=True)

    def close(self) -> None:
        """Do nothing: lines stay."""


class BarProgress:
    """One bar at the bottom of the terminal; changes of state scroll by above it."""

    def __init__(self, console: Console) -> None:
        self._state: tuple[pb.JobState, str] | None = None
        self._progress = Progress(
            BarColumn(bar_width=None),
            TextColumn("{task.fields[step]}"),
            TextColumn("{task.fields[loss]}"),
            TextColumn("{task.fields[speed]}"),
            TextColumn("{task.fields[eta]}"),
            console=console,
            expand=True,
        )
        self._task = self._progress.add_task("", total=None, step="", loss="", speed="", eta="")
        self._progress.start()

    def show(self, job: pb.Job) -> None:
        """Move the bar."""
        if (job.state, job.reason) != self._state:
            self._state = (job.state, job.reason)
            self._progress.console.print(state_text(job.state).append(f": {job.reason}", style="default"))
        self._progress.update(
            self._task,
            total=job.total_steps if job.HasField("total_steps") else None,
            completed=job.step,
            step=f"step {progress_text(job)}",
            loss=loss_text(job),
            speed=speed_text(job),
            eta=eta_text(job),
        )

    def close(self) -> None:
        """Leave the bar as it is."""
        self._progress.stop()


def loss_text(job: pb.Job) -> str:
    """Return the last loss, empty before the first step."""
    return f"loss {job.loss:.4f}" if job.HasField("loss") else ""


def speed_text(job: pb.Job) -> str:
    """Return the speed, empty while it is unknown."""
    return f"{job.examples_per_second:.1f} examples/s" if job.HasField("examples_per_second") else ""


def eta_text(job: pb.Job) -> str:
    """Return the time to the last planned step, empty while it is unknown."""
    return f"ETA {duration(job.eta_seconds)}" if job.HasField("eta_seconds") else ""
