"""The program ``takt`` and the services as users start them."""

import json
import os
import signal
import subprocess
import sys
import time
import uuid
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Self

from tests.conftest import marked_processes
from tests.integration.services.waiting import wait_until

_TAKT = Path(sys.executable).with_name("takt")
_MARK = "TAKT_TEST_PROGRAM"
_LEFT_OVER_SECONDS = 2.0
"""What processes that were killed may take to be reaped."""


@dataclass(frozen=True)
class Finished:
    """How a program ended."""

    code: int
    out: str
    err: str
    seconds: float

    @property
    def document(self) -> dict[str, Any]:
        """What ``--output json`` printed."""
        found: dict[str, Any] = json.loads(self.out)
        assert found["schema"] == "takt/v1"
        return found


class Program:
    """A program that runs as the leader of a process group of its own, as in a terminal's foreground.

    Used as a context manager it is killed at the end, should it still run.
    """

    def __init__(self, argv: Sequence[object], *, env: Mapping[str, str] | None = None) -> None:
        """Start ``argv`` with ``env`` added to the environment."""
        mark = str(uuid.uuid4())
        self._mark = f"{_MARK}={mark}"
        self._began = time.monotonic()
        self._process = subprocess.Popen(
            [str(argument) for argument in argv],
            env={**os.environ, **(env or {}), _MARK: mark},
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            start_new_session=True,
        )

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Kill it, should it still run."""
        if self._process.poll() is None:
            os.killpg(self.pid, signal.SIGKILL)
        self._process.communicate()

    @property
    def pid(self) -> int:
        """Process id, also of its group."""
        return self._process.pid

    def next_line(self) -> str:
        """Wait for the next line on stdout; return it, empty at the end."""
        assert self._process.stdout is not None
        return self._process.stdout.readline().rstrip("\n")

    def interrupt(self, *, whole_group: bool = False) -> None:
        """Press Ctrl-C: for the program alone, or for all of its group as a terminal does."""
        if whole_group:
            os.killpg(self.pid, signal.SIGINT)
        else:
            self.signal(signal.SIGINT)

    def signal(self, number: signal.Signals) -> None:
        """Send it a signal."""
        self._process.send_signal(number)

    def end(self, *, limit_seconds: float) -> Finished:
        """Wait for its end; hold that no process that it started, at any depth, is left.

        Raises:
            subprocess.TimeoutExpired: it did not end in time.
        """
        out, err = self._process.communicate(timeout=limit_seconds)
        finished = Finished(self._process.returncode, out, err, time.monotonic() - self._began)

        def none_left() -> bool:
            return not marked_processes(self._mark)

        try:
            wait_until("its processes are gone", none_left, limit_seconds=_LEFT_OVER_SECONDS)
        except TimeoutError as error:
            raise AssertionError(f"{error}: {marked_processes(self._mark)}") from error
        return finished


def start_takt(*arguments: object, env: Mapping[str, str] | None = None) -> Program:
    """Start ``takt ARGUMENTS``."""
    return Program([_TAKT, *arguments], env=env)


def start_service(module: str, *options: object, env: Mapping[str, str] | None = None) -> Program:
    """Start ``python -m MODULE OPTIONS``."""
    return Program([sys.executable, "-m", module, *options], env=env)


def takt(*arguments: object, env: Mapping[str, str] | None = None, limit_seconds: float = 120.0) -> Finished:
    """Run ``takt ARGUMENTS`` to its end."""
    with start_takt(*arguments, env=env) as program:
        return program.end(limit_seconds=limit_seconds)
