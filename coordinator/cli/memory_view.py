"""The memory that workers need by prediction, as JSON records and as lines of text."""

from collections.abc import Sequence
from dataclasses import asdict
from typing import Any

from coordinator.byte_size import shown
from coordinator.memory import WorkerMemory

_MAX_WORKERS = 32
"""Workers that are listed one by one."""


def memory_record(memory: Sequence[WorkerMemory]) -> list[dict[str, Any]]:
    """Return bytes by kind and their total, a record a worker of one replica."""
    return [{"worker": worker, **asdict(each), "total": each.total} for worker, each in enumerate(memory)]


def memory_rows(memory: Sequence[WorkerMemory]) -> list[tuple[str, str]]:
    """Return a row of name and value for each worker; of many the first ones, and the one that needs most."""
    most = max(range(len(memory)), key=lambda worker: memory[worker].total)
    listed = [worker for worker in range(len(memory)) if worker < _MAX_WORKERS or worker == most]
    rows = [
        (f"memory, worker {worker}", f"{shown(memory[worker].total)}  ({memory[worker].described})")
        for worker in listed
    ]
    if len(listed) < len(memory):
        rows.append(("", f"{len(memory) - len(listed)} further workers need no more than worker {most}"))
    return rows
