"""Gives each worker of a `takt up` a share of a core, so that more stages than cores compute at once.

Needs root and control groups of version 1, as the kernel has them at /sys/fs/cgroup/cpu.
"""

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

_GROUPS = Path("/sys/fs/cgroup/cpu")
_PERIOD_MICROSECONDS = 10_000


@contextmanager
def core_share(up: int, share: float | None) -> Iterator[None]:
    """Hold each agent that the process ``up`` has started to ``share`` of a core, with all that it starts itself.

    None leaves them alone. Afterwards they are free again.
    """
    groups = []
    for agent in _agents(up) if share is not None else ():
        group = _GROUPS / f"takt-benchmark-{os.getpid()}-{agent}"
        group.mkdir()
        groups.append(group)
        (group / "cpu.cfs_period_us").write_text(str(_PERIOD_MICROSECONDS))
        (group / "cpu.cfs_quota_us").write_text(str(int(share * _PERIOD_MICROSECONDS)))
        for process in (agent, *_children(agent)):  # an executor waits for its job already
            (group / "cgroup.procs").write_text(str(process))
    try:
        yield
    finally:
        for group in groups:
            for process in (group / "cgroup.procs").read_text().split():
                (_GROUPS / "cgroup.procs").write_text(process)
            group.rmdir()


def _children(process: int) -> list[int]:
    tasks = Path(f"/proc/{process}/task").iterdir()
    return [int(pid) for task in tasks for pid in (task / "children").read_text().split()]


def _agents(up: int) -> list[int]:
    children = _children(up)
    found = [pid for pid in children if b"stage_worker" in Path(f"/proc/{pid}/cmdline").read_bytes().split(b"\0")]
    if not found:
        raise RuntimeError(f"process {up} has started no agents, but {children}")
    return found
