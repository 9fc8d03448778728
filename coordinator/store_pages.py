"""Pages of jobs, read from the tables of the store."""

import sqlite3
from typing import Any

from coordinator import stored
from coordinator.listing import Listing, Place
from coordinator.records import JobRecord


def read_page(database: sqlite3.Connection, listing: Listing) -> tuple[list[JobRecord], Place | None]:
    """Return the jobs of one page, the newest first, and the last one's place where more follow it."""
    conditions = ["(substr(id, 1, ?) = ? OR substr(name, 1, ?) = ?)"]
    values: list[Any] = [*(len(listing.prefix), listing.prefix) * 2]
    if listing.states:
        conditions.append(f"state IN ({', '.join('?' * len(listing.states))})")
        values += listing.states
    if listing.after is not None:
        conditions.append("(created, rowid) < (?, ?)")
        values += [listing.after.created, listing.after.number]
    rows = database.execute(
        f"SELECT *, rowid AS number FROM jobs WHERE {' AND '.join(conditions)}"
        " ORDER BY created DESC, rowid DESC LIMIT ?",
        (*values, listing.limit + 1),
    ).fetchall()
    shown = rows[: listing.limit]
    last = Place(shown[-1]["created"], shown[-1]["number"]) if len(rows) > len(shown) else None
    return [stored.job_of(row) for row in shown], last
