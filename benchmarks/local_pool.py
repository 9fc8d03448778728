"""Persistent worker processes for local cases: imports cost seconds, so they are paid once."""

import json
import os
import subprocess
import sys
import tempfile
import threading
from dataclasses import dataclass
from pathlib import Path
from queue import Empty, SimpleQueue
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
        self._processes = [_Process() for _ in range(size)]
        self._folder = tempfile.TemporaryDirectory(prefix="takt-local-")

    def __enter__(self) -> Self:
        """Return itself."""
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """End all processes."""
        for process in self._processes:
            process.end()
        self._folder.cleanup()

    def run(self, case: LocalCase, *, limit_seconds: float = 60.0) -> CaseResult:
        """Run a case on all its workers.

        Raises:
            LocalRunError: a worker failed; all processes of the case are new ones afterwards.
        """
        processes = self._processes[: case.num_workers]
        if len(processes) < case.num_workers:
            raise LocalRunError(f"the case needs {case.num_workers} workers, the pool has {len(processes)}")
        try:
            address = processes[0].ask({"do": "open_store"}).answer(limit_seconds)["address"]
            paths = [Path(self._folder.name) / f"worker-{worker}.safetensors" for worker in range(case.num_workers)]
            for worker, process in enumerate(processes):
                process.ask(
                    {
                        "do": "run",
                        "case": case.to_json(),
                        "worker": worker,
                        "address": address,
                        "out": str(paths[worker]),
                    }
                )
            answers = [process.answer(limit_seconds) for process in processes]
        except LocalRunError:
            for process in processes:
                process.restart()
            raise
        return CaseResult(answers, [load_file(path) for path in paths])


class _Process:
    def __init__(self) -> None:
        self._start()

    def _start(self) -> None:
        threads = {"OMP_NUM_THREADS": "1", "MKL_NUM_THREADS": "1"}
        self._child = subprocess.Popen(
            [sys.executable, "-m", "benchmarks.local_process"],
            cwd=Path(__file__).resolve().parents[1],
            env=os.environ | threads,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        self._lines: SimpleQueue[str] = SimpleQueue()
        threading.Thread(target=self._read, args=(self._child, self._lines), daemon=True).start()

    @staticmethod
    def _read(child: "subprocess.Popen[str]", lines: "SimpleQueue[str]") -> None:
        assert child.stdout is not None
        for line in child.stdout:
            lines.put(line)
        lines.put("")

    def ask(self, request: dict[str, Any]) -> Self:
        assert self._child.stdin is not None
        try:
            self._child.stdin.write(json.dumps(request) + "\n")
            self._child.stdin.flush()
        except BrokenPipeError as error:
            raise LocalRunError(f"a worker ended with {self._child.wait()}") from error
        return self

    def answer(self, limit_seconds: float) -> dict[str, Any]:
        try:
            line = self._lines.get(timeout=limit_seconds)
        except Empty as error:
            raise LocalRunError(f"a worker did not answer within {limit_seconds:g} s") from error
        if not line:
            raise LocalRunError(f"a worker ended with {self._child.wait()}")
        answer: dict[str, Any] = json.loads(line)
        if "error" in answer:
            raise LocalRunError(answer["error"])
        return answer

    def end(self) -> None:
        self._child.kill()
        self._child.wait()
        for pipe in (self._child.stdin, self._child.stdout):
            if pipe is not None:
                pipe.close()

    def restart(self) -> None:
        self.end()
        self._start()
