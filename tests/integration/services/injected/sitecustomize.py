"""Makes executors misbehave on request; the product has no code for it.

Python imports this file at its start where this folder is on PYTHONPATH. It does nothing unless the process is
an executor and TAKT_TEST_FAULTS names a folder. There, ``JOB.json`` asks for one fault: at which ``place``
("load" or "forward"), ``stage``, ``step`` and ``dp_rank``, and what happens:

    raise   ValueError('boom')
    hold    compute without an end, until there is a file ``JOB.go``
    spin    compute for ``seconds`` without a pause

As it begins, the executor writes its process id to ``JOB.reached``.
"""

import importlib
import importlib.util
import json
import os
import sys
import time
from collections.abc import Callable, Sequence
from importlib.abc import MetaPathFinder
from importlib.machinery import ModuleSpec
from pathlib import Path
from types import ModuleType
from typing import Any

_WATCHED = "stage_worker.executor_run"


class _AfterImport(MetaPathFinder):
    """Calls ``patch`` with one module, just after its code has run."""

    def __init__(self, name: str, patch: Callable[[Any], None]) -> None:
        self._name = name
        self._patch = patch

    def find_spec(
        self, name: str, path: Sequence[str] | None = None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        if name != self._name:
            return None
        sys.meta_path.remove(self)
        spec = importlib.util.find_spec(name)
        assert spec is not None
        assert spec.loader is not None
        run_code = spec.loader.exec_module

        def exec_module(module: ModuleType) -> None:
            run_code(module)
            self._patch(module)

        spec.loader.exec_module = exec_module  # type: ignore[method-assign]
        return spec


class _Faults:
    """The fault of the job that this executor works for."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._job = ""
        self._dp_rank = 0
        self._asked: dict[str, Any] = {}

    def know(self, job: str, *, dp_rank: int) -> None:
        self._job, self._dp_rank = job, dp_rank
        file = self._folder / f"{job}.json"
        if file.is_file():
            self._asked = json.loads(file.read_text())

    def meet(self, place: str, *, stage: int, step: int | None = None) -> None:
        wanted = {name: self._asked.get(name) for name in ("place", "stage", "step", "dp_rank")}
        if wanted != {"place": place, "stage": stage, "step": step, "dp_rank": self._dp_rank}:
            return
        kind, seconds = self._asked["kind"], self._asked["seconds"]
        self._asked = {}
        unfinished = self._folder / f"{self._job}.begun"
        unfinished.write_text(str(os.getpid()))
        unfinished.rename(self._folder / f"{self._job}.reached")
        match kind:
            case "raise":
                raise ValueError("boom")
            case "hold":
                while not (self._folder / f"{self._job}.go").exists():
                    time.sleep(0.02)
            case "spin":
                began = time.monotonic()
                while time.monotonic() - began < seconds:
                    pass


def _install(faults: _Faults) -> None:
    def patch(run: Any) -> None:
        stage: Any = importlib.import_module("stage_worker.engine.stage").Stage
        begin, load, forward = run.ExecutorRun.__init__, run.ExecutorRun._load, stage.forward

        def begin_knowing(self: Any, config: Any, job: Any, record: Any) -> None:
            faults.know(job.job, dp_rank=job.place.worker // job.place.pp)
            begin(self, config, job, record)

        def load_with_fault(self: Any) -> Any:
            faults.meet("load", stage=self._job.slices[0].stage)
            return load(self)

        def forward_with_fault(self: Any, *args: Any, step: int, **more: Any) -> Any:
            faults.meet("forward", stage=self._stage, step=step)
            return forward(self, *args, step=step, **more)

        run.ExecutorRun.__init__ = begin_knowing
        run.ExecutorRun._load = load_with_fault
        stage.forward = forward_with_fault

    sys.meta_path.insert(0, _AfterImport(_WATCHED, patch))


if "TAKT_TEST_FAULTS" in os.environ and "executor" in sys.orig_argv:
    _install(_Faults(Path(os.environ["TAKT_TEST_FAULTS"])))
