"""The data of all jobs in the state folder, as steps and microbatches.

Nothing is remembered about a caller: every answer follows from the request,
the job's spec.json and the files it names.
"""

import asyncio
import enum
import re
import time
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from takt.rpc.paths import is_under

from dataloader_svc.balancing import length_balanced
from dataloader_svc.cache import LoadCache
from dataloader_svc.corpus import check_allowed, read_rows, stamps
from dataloader_svc.errors import RequestError, UnknownJobError
from dataloader_svc.facts import DataFacts, inspect_data
from dataloader_svc.labels import labels_of
from dataloader_svc.metrics import DataMetrics
from dataloader_svc.microbatches import Batcher, ColumnName, Microbatch, StepShape
from dataloader_svc.settings import DataSettings, Microbatching, parse_settings
from dataloader_svc.sharding import Grouping, Sharding, StepRangeError, StepRows, in_order
from dataloader_svc.split_key import SplitKey
from dataloader_svc.splits import SplitName
from dataloader_svc.targets import target_of
from dataloader_svc.token_folder import TokenFolder
from dataloader_svc.tokens import TokenisedRows, open_tokenizer

JOB_ID = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,79}")
MAX_STEPS_DESCRIBED = 1024
"""Most steps that one call describes."""
MAX_SPLITS_KEPT = 16
"""In memory."""
MAX_BYTES_KEPT = 2**30
"""Of tokens in the state folder."""
MAX_LOADS, MAX_INSPECTIONS = MAX_SPLITS_KEPT, 4
"""At once. They take seconds, or wait for the Hub, so each kind has threads of its own: no read waits behind them.
As many loads as splits are kept: a job that runs on must not wait for the text of others after a restart."""
MAX_STEPS_KEPT = MAX_STEPS_DESCRIBED
"""Regrouped steps in memory, so that a step that was described is not grouped again for each worker that reads it."""


class Phase(enum.Enum):
    """What the rows of a step are for."""

    TRAIN = enum.auto()
    EVALUATE = enum.auto()


@dataclass(frozen=True, slots=True, kw_only=True)
class _Split:
    """A split as it is kept in memory."""

    rows: TokenisedRows
    balanced: Grouping
    """One object for all calls, so that equal shardings of the split are equal."""


@dataclass(frozen=True, slots=True, kw_only=True)
class _Steps:
    """The steps of one phase of a job."""

    sharding: Sharding
    num_steps: int
    batcher: Batcher


class Datasets:
    """Serves the rows of every job whose spec.json is in the state folder."""

    def __init__(self, *, state_dir: Path, roots: Sequence[Path], metrics: DataMetrics) -> None:
        self._jobs = state_dir / "jobs"
        self._roots = tuple(roots)
        self.metrics = metrics
        """What is told of the work done for these jobs."""
        self._folder = TokenFolder(state_dir / "cache" / "tokens", max_bytes=MAX_BYTES_KEPT)
        self._loads = ThreadPoolExecutor(MAX_LOADS, thread_name_prefix="load")
        self._inspections = ThreadPoolExecutor(MAX_INSPECTIONS, thread_name_prefix="inspect")
        self._splits = LoadCache[SplitKey, _Split](capacity=MAX_SPLITS_KEPT, threads=self._loads)
        self._regrouped = LoadCache[tuple[Sharding, int], StepRows](capacity=MAX_STEPS_KEPT)

    async def inspect(self, spec_json: str) -> DataFacts:
        """Return the facts about the data of a spec, which need not be a job's yet.

        Raises:
            DataServiceError: the job could not be trained.
        """
        settings = parse_settings(spec_json)
        check_allowed(settings, self._roots)
        return await asyncio.get_running_loop().run_in_executor(self._inspections, inspect_data, settings)

    async def describe(
        self, job: str, phase: Phase, split: str, *, first: int, count: int, digest: str
    ) -> list[StepShape]:
        """Return the shapes of up to ``count`` steps from ``first`` on; fewer where the phase ends earlier.

        Raises:
            DataServiceError: the job, the split or a number does not fit.
            ReplacedError: the split has other rows than those of ``digest``, which is empty where any will do.
        """
        if first < 1 or count > MAX_STEPS_DESCRIBED:
            raise RequestError(
                f"first is {first} and count is {count}; steps count from 1, at most {MAX_STEPS_DESCRIBED} in one call"
            )
        steps = await self._open(job, phase, split, digest)
        numbers = range(first, min(first + count, steps.num_steps + 1))
        rows = [await self._rows(steps.sharding, number) for number in numbers]
        return await asyncio.to_thread(lambda: [steps.batcher.shape(each) for each in rows])

    async def read(
        self, job: str, phase: Phase, split: str, *, step: int, dp_rank: int, columns: Sequence[str], digest: str
    ) -> Iterator[Microbatch]:
        """Return the microbatches of one step of one replica, in ascending order, each built when it is asked for.

        Raises:
            DataServiceError: the job, the split, the replica or a column does not fit.
            ReplacedError: the split has other rows than those of ``digest``, which is empty where any will do.
            StepRangeError: the phase has no such step.
        """
        names = _columns(columns)
        steps = await self._open(job, phase, split, digest)
        if dp_rank >= steps.sharding.num_replicas:
            raise RequestError(
                f"dp_rank is {dp_rank}, the job has {steps.sharding.num_replicas} replicas, counted from 0"
            )
        if step > steps.num_steps:
            raise StepRangeError(f"step is {step}, the phase has {steps.num_steps} steps, counted from 1")
        rows = await self._rows(steps.sharding, step)
        pass_name = f"epoch {rows.epoch}" if phase is Phase.TRAIN else f"split {split}"

        def build() -> Iterator[Microbatch]:
            for index, row_ids in enumerate(rows.replicas[dp_rank]):
                started = time.perf_counter()
                microbatch = steps.batcher.microbatch(index, row_ids, names, pass_name=pass_name)
                self.metrics.built(seconds=time.perf_counter() - started)
                yield microbatch

        return build()

    def close(self) -> None:
        """Begin no load that is still waiting for a thread."""
        for threads in (self._loads, self._inspections):
            threads.shutdown(wait=False, cancel_futures=True)

    async def _open(self, job: str, phase: Phase, split: str, digest: str) -> _Steps:
        name = _split_name(phase, split)
        settings, key = await asyncio.to_thread(self._look_up, job, name)
        kept = await self._splits.get(key, lambda: self._load(settings, key))
        rows = kept.rows
        key.check_unchanged(known=digest, found=rows.digest, job=job)
        batcher = Batcher(
            rows=rows,
            target=target_of(settings, rows),
            padding=settings.padding,
            max_length=settings.max_length,
            record_rows=settings.record_rows,
        )
        if phase is Phase.TRAIN:
            sharding = settings.training(rows.num_rows, grouping=_grouping(settings, kept))
            return _Steps(sharding=sharding, num_steps=settings.training_steps(rows.num_rows), batcher=batcher)
        sharding = settings.evaluation(rows.num_rows)
        return _Steps(sharding=sharding, num_steps=sharding.steps_per_epoch, batcher=batcher)

    async def _rows(self, sharding: Sharding, step: int) -> StepRows:
        if sharding.grouping is in_order:
            return sharding.step(step)
        return await self._regrouped.get((sharding, step), lambda: sharding.step(step))

    def _load(self, settings: DataSettings, key: SplitKey) -> _Split:
        rows = self._folder.get(key, lambda: _tokenise(settings, key.split))
        return _Split(rows=rows, balanced=length_balanced(np.diff(rows.starts)))

    def _look_up(self, job: str, split: SplitName) -> tuple[DataSettings, SplitKey]:
        settings = parse_settings(self._spec(job))
        check_allowed(settings, self._roots)
        return settings, SplitKey(
            task=settings.task.name,
            labels=labels_of(settings.task, settings.model),
            malformed_lines=settings.malformed_lines,
            split=split,
            source=settings.source,
            tokenizer=settings.tokenizer,
            max_length=settings.max_length,
            max_train_rows=settings.max_train_rows,
            stamps=stamps(settings, split),
        )

    def _spec(self, job: str) -> str:
        if JOB_ID.fullmatch(job) is None:
            raise RequestError(f"job is {job!r}, need letters, digits, '.', '_' and '-', at most 80")
        path = self._jobs / job / "spec.json"
        if not is_under(path, [self._jobs]):
            raise RequestError(f"job {job}: its spec.json lies outside {self._jobs}")
        try:
            return path.read_text(encoding="utf-8")
        except FileNotFoundError as error:
            raise UnknownJobError(f"job {job} has no spec.json in {self._jobs}") from error


def _tokenise(settings: DataSettings, split: SplitName) -> TokenisedRows:
    tokenizer = open_tokenizer(settings.tokenizer)
    tokenizer.check_length(settings.max_length, num_texts=settings.task.num_texts)
    return tokenizer.tokenise(read_rows(settings, split), max_length=settings.max_length)


def _grouping(settings: DataSettings, split: _Split) -> Grouping:
    match settings.microbatching:
        case Microbatching.IN_ORDER:
            return in_order
        case Microbatching.LENGTH_BALANCED:
            return split.balanced


def _split_name(phase: Phase, split: str) -> SplitName:
    if phase is Phase.TRAIN and split != SplitName.TRAIN:
        raise RequestError(f"split is {split!r}, steps that train read the split train")
    try:
        return SplitName(split)
    except ValueError:
        raise RequestError(f"split is {split!r}, need one of {', '.join(SplitName)}") from None


def _columns(columns: Sequence[str]) -> tuple[ColumnName, ...]:
    try:
        names = tuple(ColumnName(column) for column in columns)
    except ValueError:
        raise RequestError(f"columns are {list(columns)}, need some of {', '.join(ColumnName)}") from None
    if not names or len(set(names)) < len(names):
        raise RequestError(f"columns are {list(columns)}, need at least one, each once")
    return names
