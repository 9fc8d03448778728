"""Faults of executors, asked for by the id of a job before it is submitted; see ``injected/sitecustomize.py``."""

import json
import os
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from tests.integration.services.waiting import wait_until

_INJECTED = Path(__file__).parent / "injected"
REACH_SECONDS = 40.0
"""Until an executor is where its fault begins: it may have to import torch first, on a busy machine."""


@dataclass(frozen=True)
class Faults:
    """One folder of faults, for all services that run with its environment."""

    folder: Path

    @property
    def environment(self) -> Mapping[str, str]:
        """What the services need in their environment."""
        path = os.pathsep.join(filter(None, (str(_INJECTED), os.environ.get("PYTHONPATH", ""))))
        return {"PYTHONPATH": path, "TAKT_TEST_FAULTS": str(self.folder)}

    def ask(
        self,
        job: str,
        kind: str,
        *,
        stage: int,
        step: int | None,
        place: str = "forward",
        dp_rank: int = 0,
        seconds: float = 0.0,
    ) -> None:
        """Have one executor of a job misbehave."""
        fault = {"kind": kind, "place": place, "stage": stage, "step": step, "dp_rank": dp_rank, "seconds": seconds}
        self.folder.mkdir(exist_ok=True)
        (self.folder / f"{job}.json").write_text(json.dumps(fault))

    def reached(self, job: str) -> int:
        """Wait until the fault of a job has begun; return the process id of the executor."""
        file = self.folder / f"{job}.reached"
        wait_until(f"job {job} is at its fault", file.exists, limit_seconds=REACH_SECONDS)
        return int(file.read_text())

    def reached_at(self, job: str) -> float:
        """Return when the fault of a job began, in seconds since the Unix epoch."""
        return (self.folder / f"{job}.reached").stat().st_mtime

    def let_go(self, job: str) -> None:
        """End a hold."""
        (self.folder / f"{job}.go").touch()
