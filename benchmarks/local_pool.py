"""Persistent worker processes for local cases: imports cost seconds, so one process makes them and forks the others."""

import json
import os
import signal
import socket
import subprocess
import sys
import tempfile
from dataclasses import dataclass
from multiprocessing import Pipe
from multiprocessing.connection import Connection
from pathlib import Path
from types import TracebackType
from typing import Any, Self

import torch
from safetensors.torch import load_file

from benchmarks.local_case import LocalCase


class LocalRunError(RuntimeError):
    """A worker of a local case failed, ended, or did not answer in time."""


@dataclass(frozen=True, slots=True)
class CaseResult:
    """What all workers of a case told."""

    workers: list[dict[str, Any]]
    """By worker: ``steps``, ``seconds``, ``parameters`` and so on; see ``local_run.LocalResult``."""
    tensors: list[dict[str, torch.Tensor]]
    """By worker."""

    def merged(self, prefix: str, *, workers: range | None = None) -> dict[str, torch.Tensor]:
        """Return the tensors below ``prefix/`` of some workers, of all where not said."""
        chosen = self.tensors if workers is None else [self.tensors[worker] for worker in workers]
        return {
            name.removeprefix(f"{prefix}/"): tensor
            for tensors in chosen
            for name, tensor in tensors.items()
            if name.startswith(f"{prefix}/")
        }

    def steps(self, worker: int, phase: str = "TRAIN") -> list[dict[str, Any]]:
        """Return one worker's step results of a phase, in order."""
        return [step for step in self.workers[worker]["steps"] if step["phase"] == phase]


class LocalPool:
    """Runs cases on up to ``size`` processes of this machine, one torch thread each. Use as a context manager."""

    def __init__(self, size: int) -> None:
        self._template = _Template(size)
        self._folder = tempfile.TemporaryDirectory(prefix="takt-local-")

    def __enter__(self) -> Self:
        """Return itself."""
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """End all processes."""
        self._template.end()
        self._folder.cleanup()

    def run(self, case: LocalCase, *, limit_seconds: float = 60.0) -> CaseResult:
        """Run a case on all its workers.

        Raises:
            LocalRunError: a worker failed; all processes are new ones afterwards.
        """
        workers = self._template.workers[: case.num_workers]
        if len(workers) < case.num_workers:
            raise LocalRunError(f"the case needs {case.num_workers} workers, the pool has {len(workers)}")
        try:
            address = workers[0].ask({"do": "open_store"}).answer(limit_seconds)["address"]
            paths = [Path(self._folder.name) / f"worker-{worker}.safetensors" for worker in range(case.num_workers)]
            for number, worker in enumerate(workers):
                request = {"case": case.to_json(), "worker": number, "address": address, "out": str(paths[number])}
                worker.ask({"do": "run"} | request)
            answers = [worker.answer(limit_seconds) for worker in workers]
        except LocalRunError:
            self._template.restart()
            raise
        return CaseResult(answers, [load_file(path) for path in paths])


class _Template:
    """The process that makes the imports; in a session of its own with all that it forks, so that none is left."""

    def __init__(self, size: int) -> None:
        self._size = size
        self._start()

    def _start(self) -> None:
        self._control, other = socket.socketpair()
        with other:
            self._child = subprocess.Popen(
                [sys.executable, "-m", "benchmarks.local_process"],
                cwd=Path(__file__).resolve().parents[1],
                env=os.environ | {"OMP_NUM_THREADS": "1", "MKL_NUM_THREADS": "1"},
                stdin=other.fileno(),
                start_new_session=True,
            )
        self.workers = [self._fork() for _ in range(self._size)]

    def _fork(self) -> "_Worker":
        own, other = Pipe()
        with other:
            socket.send_fds(self._control, [b"1"], [other.fileno()])
        return _Worker(own)

    def end(self) -> None:
        os.killpg(self._child.pid, signal.SIGKILL)
        self._child.wait()
        self._control.close()
        for worker in self.workers:
            worker.connection.close()

    def restart(self) -> None:
        self.end()
        self._start()


@dataclass(frozen=True, slots=True)
class _Worker:
    connection: Connection

    def ask(self, request: dict[str, Any]) -> Self:
        try:
            self.connection.send_bytes(json.dumps(request).encode())
        except BrokenPipeError as error:
            raise LocalRunError("a worker ended") from error
        return self

    def answer(self, limit_seconds: float) -> dict[str, Any]:
        if not self.connection.poll(limit_seconds):
            raise LocalRunError(f"a worker did not answer within {limit_seconds:g} s")
        try:
            answer: dict[str, Any] = json.loads(self.connection.recv_bytes())
        except (EOFError, ConnectionResetError) as error:
            raise LocalRunError("a worker ended") from error
        if "error" in answer:
            raise LocalRunError(answer["error"])
        return answer
