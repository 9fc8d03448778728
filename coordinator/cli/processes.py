"""Processes below our children, which nobody else ends where their own parent was killed. Linux only."""

import os
import signal
from collections.abc import Iterable
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

_PROC = Path("/proc")


@dataclass(frozen=True, slots=True)
class Process:
    """One process; the start time tells it from a later one with the same id."""

    pid: int
    start_ticks: int


def descendants(pids: Iterable[int]) -> set[Process]:
    """Return all processes below ``pids``, themselves left out; empty where /proc does not tell."""
    found: set[Process] = set()
    waiting = list(pids)
    while waiting:
        for pid in _children(waiting.pop()):
            ticks = _start_ticks(pid)
            if ticks is not None:
                found.add(Process(pid, ticks))
                waiting.append(pid)
    return found


def alive(processes: Iterable[Process]) -> set[Process]:
    """Return those that still run; one that has ended but was not reaped does not."""
    return {process for process in processes if _start_ticks(process.pid) == process.start_ticks}


def kill(processes: Iterable[Process]) -> None:
    """End them at once."""
    for process in alive(processes):
        with suppress(ProcessLookupError, PermissionError):
            os.kill(process.pid, signal.SIGKILL)


def _children(pid: int) -> list[int]:
    children: list[int] = []
    # A thread may end between being listed and being read.
    with suppress(OSError):
        for task in (_PROC / str(pid) / "task").iterdir():
            with suppress(OSError):
                children += map(int, (task / "children").read_text().split())
    return children


def _start_ticks(pid: int) -> int | None:
    """Return when the process started, in clock ticks; None where it is gone or a zombie."""
    try:
        fields = (_PROC / str(pid) / "stat").read_text().rpartition(")")[2].split()
    except OSError:
        return None
    return None if fields[0] == "Z" else int(fields[19])
