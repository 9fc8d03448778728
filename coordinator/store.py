"""The job store: one SQLite file in the state folder, and the only module with SQL.

The interface of ``Store`` is the door to another database. A store belongs to
the thread that opened it; several processes may have one file open.
"""

import sqlite3
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from takt.rpc.errors import TaktError

from coordinator.records import (
    EvaluationRecord,
    JobError,
    JobRecord,
    JobState,
    JobView,
    StateChange,
    StepRecord,
    WorkerRecord,
)
from coordinator.store_schema import VERSION, statements_from
from coordinator.stored import (
    change_of,
    change_values,
    error_text,
    evaluation_of,
    evaluation_values,
    job_of,
    job_values,
    step_of,
    step_values,
    worker_of,
    worker_values,
)

FILE_NAME = "takt.db"
RECENT_STEPS = 20
"""Steps over which a job's speed is measured."""


class StoreError(TaktError):
    """The job store cannot be opened or read."""


class JobExistsError(TaktError):
    """Another job has this id."""


class Store:
    """Jobs, their history, steps, evaluations and workers; every method is one transaction."""

    def __init__(self, connection: sqlite3.Connection) -> None:
        self._db = connection
        self._db.row_factory = sqlite3.Row

    @classmethod
    def open(cls, state_dir: Path) -> "Store":
        """Open the store of a state folder for writing; create both where they are absent.

        Raises:
            StoreError: the folder or the file cannot be written, or the file is no store.
        """
        path = state_dir / FILE_NAME
        try:
            state_dir.mkdir(parents=True, exist_ok=True)
            connection = sqlite3.connect(path, timeout=10, isolation_level=None)
            connection.execute("PRAGMA journal_mode=WAL")
            connection.execute("PRAGMA synchronous=FULL")
            connection.execute("PRAGMA foreign_keys=ON")
            with _Transaction(connection):  # one process after the other, or both would add the same columns
                (version,) = connection.execute("PRAGMA user_version").fetchone()
                if version > VERSION:
                    raise StoreError(f"the job store {path} has format {version}, this program writes {VERSION}")
                for statement in statements_from(version):
                    connection.execute(statement)
        except (OSError, sqlite3.Error) as error:
            raise StoreError(f"the job store {path} cannot be opened for writing: {error}") from error
        return cls(connection)

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
        return cls(connection)

    def close(self) -> None:
        """Close the file."""
        self._db.close()

    def add_job(self, job: JobRecord) -> None:
        """Add a new job, its state being the first of its history.

        Raises:
            JobExistsError: the id is taken.
        """
        change = StateChange(state=job.state, reason=job.reason, attempt=0, step=0, time=job.created)
        try:
            with self._transaction():
                self._insert("jobs", job_values(job))
                self._insert("history", change_values(job.id, change))
        except sqlite3.IntegrityError as error:
            raise JobExistsError(f"job {job.id} exists") from error

    def job(self, job: str) -> JobRecord | None:
        """Return one job, None where there is none."""
        row = self._db.execute("SELECT * FROM jobs WHERE id = ?", (job,)).fetchone()
        return None if row is None else job_of(row)

    def jobs(self) -> list[JobRecord]:
        """Return all jobs, the oldest first."""
        return [job_of(row) for row in self._db.execute("SELECT * FROM jobs ORDER BY created, rowid")]

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
        with self._transaction():
            self._db.execute(
                "UPDATE jobs SET state = ?, reason = ?, attempt = ?, missing_slots = 0, error = ?,"
                " started = CASE WHEN ? THEN coalesce(started, ?) ELSE started END,"
                " ended = CASE WHEN ? THEN ? ELSE ended END WHERE id = ?",
                (
                    *(change.state, change.reason, change.attempt, error_text(error)),
                    *(change.state is JobState.STARTING, change.time, change.state.is_final, change.time, job),
                ),
            )
            self._insert("history", change_values(job, change))

    def set_waiting(self, job: str, *, reason: str, missing_slots: int) -> None:
        """Say what a job waits for, if it is queued still; that is no change of state."""
        self._db.execute(
            "UPDATE jobs SET reason = ?, missing_slots = ? WHERE id = ? AND state = ?",
            (reason, missing_slots, job, JobState.QUEUED),
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

    def set_owner(self, job: str, owner: str) -> None:
        """Give a job to another coordinator."""
        self._update(job, {"owner": owner})

    def add_step(self, job: str, step: StepRecord) -> None:
        """Commit one step."""
        with self._transaction():
            self._insert("steps", step_values(job, step))
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
        return [step_of(row) for row in rows]

    def add_evaluation(self, job: str, evaluation: EvaluationRecord) -> None:
        """Keep one evaluation."""
        self._insert("evaluations", evaluation_values(job, evaluation))

    def evaluations(self, job: str) -> list[EvaluationRecord]:
        """Return the evaluations of a job in order."""
        rows = self._db.execute("SELECT * FROM evaluations WHERE job = ? ORDER BY number", (job,))
        return [evaluation_of(row) for row in rows]

    def set_workers(self, job: str, workers: Iterable[WorkerRecord]) -> None:
        """Replace what is known of a job's workers."""
        with self._transaction():
            self._db.execute("DELETE FROM workers WHERE job = ?", (job,))
            for worker in workers:
                self._insert("workers", worker_values(job, worker))

    def workers(self, job: str) -> list[WorkerRecord]:
        """Return the workers of a job's last attempt, ascending."""
        return [
            worker_of(row) for row in self._db.execute("SELECT * FROM workers WHERE job = ? ORDER BY worker", (job,))
        ]

    def history(self, job: str) -> list[StateChange]:
        """Return every change of a job's state, the oldest first."""
        rows = self._db.execute("SELECT * FROM history WHERE job = ? ORDER BY number", (job,))
        return [change_of(row) for row in rows]

    def _transaction(self) -> "_Transaction":
        return _Transaction(self._db)

    def _insert(self, table: str, values: Mapping[str, Any]) -> None:
        marks = ", ".join("?" * len(values))
        self._db.execute(f"INSERT INTO {table} ({', '.join(values)}) VALUES ({marks})", tuple(values.values()))

    def _update(self, job: str, values: Mapping[str, Any]) -> None:
        settings = ", ".join(f"{name} = ?" for name in values)
        self._db.execute(f"UPDATE jobs SET {settings} WHERE id = ?", (*values.values(), job))


class _Transaction:
    """Takes the write lock at once, so that two processes wait for each other instead of failing."""

    def __init__(self, connection: sqlite3.Connection) -> None:
        self._db = connection

    def __enter__(self) -> None:
        self._db.execute("BEGIN IMMEDIATE")

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        self._db.execute("COMMIT" if kind is None else "ROLLBACK")
