"""The tables of the job store, and what brings a store of an older version to them."""

import sqlite3
from pathlib import Path

from coordinator.transaction import Transaction

VERSION = 4
"""Of the tables below; a store of an older version is brought to it, one of a newer version is refused."""

_SCHEMA = """
CREATE TABLE IF NOT EXISTS jobs (
    id TEXT PRIMARY KEY, name TEXT NOT NULL, spec_json TEXT NOT NULL, digest TEXT NOT NULL, owner TEXT NOT NULL,
    num_slots INTEGER NOT NULL, state TEXT NOT NULL, reason TEXT NOT NULL, created REAL NOT NULL,
    attempt INTEGER NOT NULL, step INTEGER NOT NULL, total_steps INTEGER, epoch INTEGER NOT NULL, loss REAL,
    started REAL, ended REAL, missing_slots INTEGER NOT NULL, bubble_fraction REAL, error TEXT,
    skipped_steps INTEGER NOT NULL DEFAULT 0, priority INTEGER NOT NULL DEFAULT 0, facts TEXT,
    start_step INTEGER NOT NULL DEFAULT 0
) STRICT;
CREATE INDEX IF NOT EXISTS jobs_by_age ON jobs(created);
CREATE TABLE IF NOT EXISTS history (
    number INTEGER PRIMARY KEY, job TEXT NOT NULL REFERENCES jobs(id), state TEXT NOT NULL, reason TEXT NOT NULL,
    attempt INTEGER NOT NULL, step INTEGER NOT NULL, time REAL NOT NULL
) STRICT;
CREATE INDEX IF NOT EXISTS history_of_job ON history(job, number);
CREATE TABLE IF NOT EXISTS steps (
    job TEXT NOT NULL REFERENCES jobs(id), step INTEGER NOT NULL, epoch INTEGER NOT NULL, loss REAL, grad_norm REAL,
    learning_rate REAL NOT NULL, examples INTEGER NOT NULL, tokens INTEGER NOT NULL, padded_tokens INTEGER NOT NULL,
    seconds REAL NOT NULL, skipped INTEGER NOT NULL, rows TEXT, loss_scale REAL, PRIMARY KEY (job, step)
) STRICT, WITHOUT ROWID;
CREATE TABLE IF NOT EXISTS evaluations (
    number INTEGER PRIMARY KEY, job TEXT NOT NULL REFERENCES jobs(id), step INTEGER NOT NULL, split TEXT NOT NULL,
    examples INTEGER NOT NULL, loss REAL, metrics TEXT NOT NULL, reason TEXT, UNIQUE (job, step, split)
) STRICT;
CREATE TABLE IF NOT EXISTS workers (
    job TEXT NOT NULL REFERENCES jobs(id), worker INTEGER NOT NULL, stages TEXT NOT NULL, dp_rank INTEGER NOT NULL,
    host TEXT NOT NULL, state TEXT NOT NULL, pid INTEGER NOT NULL, log TEXT NOT NULL, parameters INTEGER,
    peak_bytes INTEGER, last_progress REAL, busy_seconds REAL NOT NULL, idle_seconds REAL NOT NULL,
    stage_busy_seconds TEXT NOT NULL DEFAULT '[]', agent TEXT NOT NULL DEFAULT '', PRIMARY KEY (job, worker)
) STRICT, WITHOUT ROWID;
CREATE TABLE IF NOT EXISTS lease (
    one INTEGER PRIMARY KEY CHECK (one = 1), epoch INTEGER NOT NULL, owner TEXT NOT NULL, address TEXT NOT NULL,
    beat REAL NOT NULL
) STRICT;
"""
"""The tables of a new store; those that an older one lacks are made before its columns are brought up to date."""
_UPGRADES = {
    1: "ALTER TABLE workers ADD COLUMN stage_busy_seconds TEXT NOT NULL DEFAULT '[]';",
    2: "ALTER TABLE steps ADD COLUMN loss_scale REAL;"
    " ALTER TABLE jobs ADD COLUMN skipped_steps INTEGER NOT NULL DEFAULT 0;",
    3: "ALTER TABLE jobs ADD COLUMN priority INTEGER NOT NULL DEFAULT 0; ALTER TABLE jobs ADD COLUMN facts TEXT;"
    " ALTER TABLE jobs ADD COLUMN start_step INTEGER NOT NULL DEFAULT 0;"
    " ALTER TABLE workers ADD COLUMN agent TEXT NOT NULL DEFAULT '';",
}
"""What brings a store of each older version to the next one."""

BUSY_SECONDS = 10.0
"""How long a writer waits for another one."""


def connect(path: Path) -> sqlite3.Connection:
    """Return a connection that writes the store in a file, which is brought to `VERSION`, or made.

    Raises:
        sqlite3.Error: it cannot be written, or is no store.
        ValueError: it is of a newer version.
    """
    connection = sqlite3.connect(path, timeout=BUSY_SECONDS, isolation_level=None)
    connection.execute("PRAGMA journal_mode=WAL")
    connection.execute("PRAGMA synchronous=FULL")
    connection.execute("PRAGMA foreign_keys=ON")
    with Transaction(connection):  # one process after the other, or both would add the same columns
        (version,) = connection.execute("PRAGMA user_version").fetchone()
        if version > VERSION:
            raise ValueError(f"it has format {version}, this program writes {VERSION}")
        # A table that is made here has all its columns.
        upgrades = [_UPGRADES[old] for old in range(version, VERSION)] if version else []
        for script in (_SCHEMA, *upgrades, f"PRAGMA user_version={VERSION}"):
            for statement in script.split(";"):
                connection.execute(statement)
    return connection
