"""What all tests share: the promise that none leaves a process behind."""

import os
import time
import uuid
from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import settings

MARK = "TAKT_TEST_SESSION"
PROC = Path("/proc")

# On tiny tensors torch's threads spend their time waiting for each other; executors compute with one as well.
os.environ.setdefault("OMP_NUM_THREADS", "1")

# How long an example takes says how busy the machine is; every test has a limit of its own.
settings.register_profile("unhurried", deadline=None)
settings.load_profile("unhurried")


@pytest.fixture(scope="session", autouse=True)
def no_process_is_left_behind() -> Iterator[None]:
    """Fail the session where a process that some test started, at any depth, outlives it by 10 seconds."""
    session = str(uuid.uuid4())
    os.environ[MARK] = session
    yield
    del os.environ[MARK]
    deadline = time.monotonic() + 10
    while left := marked_processes(f"{MARK}={session}"):
        if time.monotonic() > deadline:
            pytest.fail(f"processes outlived the tests that started them: {'; '.join(left)}")
        time.sleep(0.1)


def marked_processes(mark: str) -> list[str]:
    """Return the processes that were started with ``mark`` in their environment; none where /proc is not there."""
    found = []
    for folder in PROC.glob("[0-9]*"):
        try:
            inherited = (folder / "environ").read_bytes().split(b"\0")
            command = (folder / "cmdline").read_bytes().replace(b"\0", b" ").decode(errors="replace")
        except OSError:  # gone, or another user's
            continue
        if mark.encode() in inherited and "resource_tracker" not in command:
            found.append(f"{folder.name} {command.strip()}")
    return found
