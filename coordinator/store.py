"""The job store: one SQLite file in the state folder, and the only module with SQL.

The interface of ``Store`` is the door to another database. A store belongs to
the thread that opened it; several processes may have one file open. What belongs
to a job is written only by the coordinator that owns the job, and, where that one
serves the whole folder, only while it holds the lease: both are asked for inside
the transaction that writes.
"""

import sqlite3
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from takt.rpc.errors import TaktError

from coordinator import stored
from coordinator.listing import Listing, Place
from coordinator.records import (
    EvaluationRecord,
    JobError,
    JobRecord,
    JobState,
    JobView,
    Lease,
    StateChange,
    StepRecord,
    WorkerRecord,
)
from coordinator.store_pages import read_page
from coordinator.store_schema import connect
from coordinator.transaction import Transaction

FILE_NAME = "takt.db"
RECENT_STEPS = 20
"""Steps over which a job's speed is measured."""


class StoreError(TaktError):
    """The job store cannot be opened or read."""


class JobExistsError(TaktError):
    """Another job has this id."""


class LostError(TaktError):
    """Another coordinator has taken over what this one wanted to write to; nothing was written."""


class Store:
    """Jobs, their history, steps, evaluations and workers; every method is one transaction.

    Every method that writes raises `LostError` where another coordinator owns the job, or holds the lease.
    """

    def __init__(self, connection: sqlite3.Connection, *, owner: str, needs_lease: bool) -> None:
        self._db = connection
        self._db.row_factory = sqlite3.Row
        self._owner = owner
        self._needs_lease = needs_lease

    @classmethod
    def open(cls, state_dir: Path, *, owner: str, needs_lease: bool = False) -> "Store":
        """Open the store of a state folder for writing; create both where they are absent.

        Args:
            state_dir: the state folder.
            owner: the coordinator that writes.
            needs_lease: whether it writes only while it holds the lease.

        Raises:
            StoreError: the folder or the file cannot be written, or the file is no store.
        """
        path = state_dir / FILE_NAME
        try:
            state_dir.mkdir(parents=True, exist_ok=True)
            connection = connect(path)
        except (OSError, sqlite3.Error, ValueError) as error:
            raise StoreError(f"the job store {path} cannot be opened for writing: {error}") from error
        return cls(connection, owner=owner, needs_lease=needs_lease)

    @classmethod
    def open_read_only(cls, state_dir: Path) -> "Store":
        """Open the store of a state folder for reading; no coordinator has to run.

        Raises:
            StoreError: there is none, or it cannot be read.
        """
        path = state_dir / FILE_NAME
        if not path.is_file():
            raise StoreError(f"{state_dir} holds no job store ({FILE_NAME}); pass --state-dir, or submit a job first")
        try:
            connection = sqlite3.connect(f"{path.resolve().as_uri()}?mode=ro", timeout=10, uri=True)
            connection.execute("SELECT count(*) FROM jobs")
        except sqlite3.Error as error:
            raise StoreError(f"the job store {path} cannot be read: {error}") from error
        return cls(connection, owner="", needs_lease=False)

    def close(self) -> None:
        """Close the file."""
        self._db.close()

    @contextmanager
    def owned(self, job: str) -> Iterator[None]:
        """Hold the write lock while a job is ours, so that nobody takes it over meanwhile: for what is written of it.

        Raises:
            LostError: it is another coordinator's, or the lease is.
        """
        with self._writing():
            row = self._db.execute("SELECT owner FROM jobs WHERE id = ?", (job,)).fetchone()
            if row is None or row["owner"] != self._owner:
                raise LostError(f"job {job} belongs to another coordinator now")
            yield

    def lease(self) -> Lease | None:
        """Return who serves the folder, None where nobody ever did."""
        try:
            row = self._db.execute("SELECT epoch, owner, address, beat FROM lease").fetchone()
        except sqlite3.OperationalError:  # a store of a version without leases, opened for reading
            return None
        return None if row is None else Lease(**row)

    def take_lease(self, *, seen: Lease | None, now: float) -> bool:
        """Become who serves the folder, if the lease is what it was ``seen`` to be; return whether it was."""
        with self._transaction():
            lease = self.lease()
            if lease != seen:
                return False
            self._db.execute(
                "INSERT OR REPLACE INTO lease (one, epoch, owner, address, beat) VALUES (1, ?, ?, '', ?)",
                (1 if lease is None else lease.epoch + 1, self._owner, now),
            )
        return True

    def beat(self, address: str, *, now: float) -> None:
        """Say that who serves the folder lives, and listens at ``address``."""
        with self._writing():
            self._db.execute("UPDATE lease SET address = ?, beat = ?", (address, now))

    def add_job(self, job: JobRecord) -> None:
        """Add a new job, its state being the first of its history.

        Raises:
            JobExistsError: the id is taken.
        """
        change = StateChange(state=job.state, reason=job.reason, attempt=0, step=0, time=job.created)
        try:
            with self._writing():
                self._insert("jobs", stored.job_values(job))
                self._insert("history", stored.change_values(job.id, change))
        except sqlite3.IntegrityError as error:
            raise JobExistsError(f"job {job.id} exists") from error

    def job(self, job: str) -> JobRecord | None:
        """Return one job, None where there is none."""
        row = self._db.execute("SELECT * FROM jobs WHERE id = ?", (job,)).fetchone()
        return None if row is None else stored.job_of(row)

    def jobs(self) -> list[JobRecord]:
        """Return all jobs, the oldest first."""
        return [stored.job_of(row) for row in self._db.execute("SELECT * FROM jobs ORDER BY created, rowid")]

    def page(self, listing: Listing) -> tuple[list[JobRecord], Place | None]:
        """Return the jobs of one page, the newest first, and the last one's place where more follow it."""
        return read_page(self._db, listing)

    def count_by_state(self) -> dict[JobState, int]:
        """Return how many jobs are in each state that any job is in."""
        return {JobState(row[0]): row[1] for row in self._db.execute("SELECT state, count(*) FROM jobs GROUP BY state")}

    def view(self, job: str) -> JobView | None:
        """Return one job with its history, workers and last steps, None where there is none."""
        record = self.job(job)
        if record is None:
            return None
        return JobView(
            record=record,
            history=tuple(self.history(job)),
            workers=tuple(self.workers(job)),
            recent_steps=tuple(self.steps(job, last=RECENT_STEPS)),
        )

    def change_state(self, job: str, change: StateChange, *, error: JobError | None = None) -> None:
        """Record that a job changed its state; its start and its end are taken from the change's time."""
        with self.owned(job):
            self._db.execute(
                "UPDATE jobs SET state = ?, reason = ?, attempt = ?, missing_slots = 0, error = ?,"
                " started = CASE WHEN ? THEN coalesce(started, ?) ELSE started END,"
                " ended = CASE WHEN ? THEN ? END WHERE id = ?",
                (
                    *(change.state, change.reason, change.attempt, stored.error_text(error)),
                    *(change.state is JobState.STARTING, change.time, change.state.is_final, change.time, job),
                ),
            )
            self._insert("history", stored.change_values(job, change))

    def set_waiting(self, job: str, *, reason: str, missing_slots: int) -> None:
        """Say what a job waits for, if it is queued still; that is no change of state."""
        with self.owned(job):
            self._db.execute(
                "UPDATE jobs SET reason = ?, missing_slots = ? WHERE id = ? AND state IN (?, ?)",
                (reason, missing_slots, job, JobState.QUEUED, JobState.RECOVERING),
            )

    def set_plan(self, job: str, *, total_steps: int, bubble_fraction: float) -> None:
        """Keep what the plan of a job says."""
        self._update(job, {"total_steps": total_steps, "bubble_fraction": bubble_fraction})

    def set_facts(self, job: str, text: str) -> None:
        """Keep what the plan of a job was made of."""
        self._update(job, {"facts": text})

    def set_start(self, job: str, step: int) -> None:
        """Keep the step that a job began after."""
        self._update(job, {"start_step": step})

    def take_over(self, job: str, *, owner: str) -> bool:
        """Make the job of another coordinator ours; return whether it was that one's still."""
        with self._writing():
            taken = self._db.execute("UPDATE jobs SET owner = ? WHERE id = ? AND owner = ?", (self._owner, job, owner))
        return taken.rowcount == 1

    def add_step(self, job: str, step: StepRecord) -> None:
        """Commit one step."""
        with self.owned(job):
            self._insert("steps", stored.step_values(job, step))
            self._db.execute(
                "UPDATE jobs SET step = ?, epoch = ?, loss = ?, skipped_steps = skipped_steps + ? WHERE id = ?",
                (step.step, step.epoch, step.loss, step.skipped, job),
            )

    def steps(self, job: str, *, last: int | None = None) -> list[StepRecord]:
        """Return the committed steps of a job in order, or only the last ones."""
        rows = self._db.execute(
            "SELECT * FROM (SELECT * FROM steps WHERE job = ? ORDER BY step DESC LIMIT ?) ORDER BY step",
            (job, -1 if last is None else last),
        )
        return [stored.step_of(row) for row in rows]

    def add_evaluation(self, job: str, evaluation: EvaluationRecord) -> None:
        """Keep one evaluation."""
        with self.owned(job):
            self._insert("evaluations", stored.evaluation_values(job, evaluation))

    def evaluations(self, job: str) -> list[EvaluationRecord]:
        """Return the evaluations of a job in order."""
        rows = self._db.execute("SELECT * FROM evaluations WHERE job = ? ORDER BY number", (job,))
        return [stored.evaluation_of(row) for row in rows]

    def set_workers(self, job: str, workers: Iterable[WorkerRecord]) -> None:
        """Replace what is known of a job's workers."""
        with self.owned(job):
            self._db.execute("DELETE FROM workers WHERE job = ?", (job,))
            for worker in workers:
                self._insert("workers", stored.worker_values(job, worker))

    def workers(self, job: str) -> list[WorkerRecord]:
        """Return the workers of a job's last attempt, ascending."""
        return [
            stored.worker_of(row)
            for row in self._db.execute("SELECT * FROM workers WHERE job = ? ORDER BY worker", (job,))
        ]

    def history(self, job: str) -> list[StateChange]:
        """Return every change of a job's state, the oldest first."""
        rows = self._db.execute("SELECT * FROM history WHERE job = ? ORDER BY number", (job,))
        return [stored.change_of(row) for row in rows]

    @contextmanager
    def _writing(self) -> Iterator[None]:
        with self._transaction():
            if self._needs_lease:
                lease = self.lease()
                if lease is None or lease.owner != self._owner:
                    where = "" if lease is None or not lease.address else f", which listens at {lease.address}"
                    raise LostError(f"another coordinator has taken the state folder over{where}")
            yield

    def _transaction(self) -> Transaction:
        return Transaction(self._db)

    def _insert(self, table: str, values: Mapping[str, Any]) -> None:
        marks = ", ".join("?" * len(values))
        self._db.execute(f"INSERT INTO {table} ({', '.join(values)}) VALUES ({marks})", tuple(values.values()))

    def _update(self, job: str, values: Mapping[str, Any]) -> None:
        settings = ", ".join(f"{name} = ?" for name in values)
        with self.owned(job):
            self._db.execute(f"UPDATE jobs SET {settings} WHERE id = ?", (*values.values(), job))
