"""What a run leaves behind: journalled steps, checkpoints and evaluations."""

import asyncio
import time
from collections.abc import Sequence
from dataclasses import asdict

import structlog
from takt.v1 import data_pb2

from coordinator import scoring
from coordinator.commit import step_record
from coordinator.evaluation import Evaluation
from coordinator.events import SavedShard, StepResult
from coordinator.failure import unsaved
from coordinator.files import JobFiles
from coordinator.journal import Journal
from coordinator.metrics import RunMetrics
from coordinator.planning import JobPlan
from coordinator.predictions import submission
from coordinator.records import StepRecord
from coordinator.scoring import EvaluationError, Row, Scoring
from coordinator.start import AgreedState, Start
from coordinator.store import Store

_log = structlog.get_logger()


class Results:
    """The results of one run; each is on disk when its call returns."""

    def __init__(
        self,
        *,
        job: str,
        attempt: int,
        plan: JobPlan,
        start: Start,
        journal: Journal,
        files: JobFiles,
        metrics: RunMetrics,
    ) -> None:
        self._job = job
        self._attempt = attempt
        self._plan = plan
        self._start = start
        self._journal = journal
        self._files = files
        self._metrics = metrics
        self._committed_at = time.monotonic()
        self._evaluation: Evaluation | None = None
        self._warming: asyncio.Task[None] | None = None

    def start(self) -> None:
        """The workers begin their first step now."""
        self._committed_at = time.monotonic()
        spec = self._plan.spec
        evaluates = spec.eval.at_end or spec.eval.every_steps is not None or spec.predict.split is not None
        if evaluates and not spec.train.objective.is_token_level:
            self._warming = asyncio.create_task(asyncio.to_thread(scoring.warm))

    async def commit_step(self, results: Sequence[StepResult], description: data_pb2.StepDescription) -> None:
        """Journal a training step; one that is in the journal already must be the same again.

        Raises:
            ReplayError: it is not.
        """
        now = time.monotonic()
        seconds, self._committed_at = now - self._committed_at, now
        record_rows = self._plan.spec.data.record_rows
        step = step_record(results, description, seconds=seconds, record_rows=record_rows)
        if self._start.is_replayed(step):
            _log.info("step done again", job=self._job, step=step.step, loss=step.loss)
            return
        await self._journal.do(lambda store: self._write_step(store, step))
        self._metrics.committed(self._job, step)
        _log.info("step committed", job=self._job, step=step.step, loss=step.loss, seconds=round(step.seconds, 4))

    async def commit_checkpoint(
        self, step: int, shards: Sequence[SavedShard], agreed: AgreedState, *, seconds: float
    ) -> None:
        """Complete a checkpoint and drop the oldest; one that cannot be completed is dropped, but for the last.

        Args:
            step: whose state was saved.
            shards: what the workers have written.
            agreed: what they had alike.
            seconds: what the slowest of them took.

        Raises:
            ValueError: the last one cannot be written, or a shard of it is not there as it was reported.
        """
        began_at = time.monotonic()
        spec, split = self._plan.spec, self._plan.data.split("train")
        num_stages, keep = self._plan.train.placement.num_stages, spec.checkpoint.keep
        epoch = (step - 1) // self._plan.data.steps_per_epoch
        about = {
            "attempt": self._attempt,
            "epoch": epoch,
            "agreed": asdict(agreed),
            "data": {
                "next_step": step + 1,
                "epoch": epoch,
                "seed": spec.train.seed,
                "global_batch_size": spec.train.global_batch_size,
                "train_digest": "" if split is None else split.digest,
            },
            "from": None,
        }

        def write(store: Store) -> None:
            with store.owned(self._job):
                self._files.write_manifest(step=step, num_stages=num_stages, shards=shards, about=about)
                try:
                    self._files.prune_checkpoints(keep=keep)
                except OSError as error:
                    _log.warning("an old checkpoint could not be removed", job=self._job, reason=str(error))

        try:
            await self._journal.do(write)
        except (OSError, ValueError) as error:
            if step == self._plan.total_steps:
                raise ValueError(unsaved(step, str(error)).message) from error
            await self.drop_checkpoint(step, str(error))
            return
        self._metrics.checkpointed(self._job, seconds=seconds + time.monotonic() - began_at)

    async def drop_checkpoint(self, step: int, reason: str) -> None:
        """Remove what there is of a checkpoint that could not be written, and say so."""

        def write(store: Store) -> None:
            with store.owned(self._job):
                self._files.drop_checkpoint(step)

        await self._journal.do(write)
        self._metrics.checkpoint_failed(self._job)
        _log.error(
            "a checkpoint could not be written; the one before it stays", job=self._job, step=step, reason=reason
        )

    def add_rows(self, split: str, rows: Sequence[Row]) -> None:
        """Take outputs of the evaluation that is under way.

        Raises:
            EvaluationError: a row came twice or is not of the split, or another split is under way.
        """
        self._evaluation_of(split).add(rows)

    async def commit_evaluation(self, after: int, split: str) -> None:
        """Compute and journal the figures of the evaluation that was under way.

        Raises:
            EvaluationError: not every row of the split was reported once.
        """
        collected, self._evaluation = self._evaluation_of(split), None
        record = await asyncio.to_thread(collected.record, step=after)
        predicts = self._plan.spec.predict.split is not None
        text = submission(collected.rows, written_labels=self._plan.data.written_labels) if predicts else None

        def write(store: Store) -> None:
            with store.owned(self._job):
                if text is not None:
                    self._files.write_predictions(split, text)
                store.add_evaluation(self._job, record)
                self._files.append_evaluation(record)

        await self._journal.do(write)

    def _evaluation_of(self, split: str) -> Evaluation:
        if self._evaluation is None:
            facts = self._plan.data.split(split)
            self._evaluation = Evaluation(
                split=split,
                num_rows=0 if facts is None else facts.num_rows,
                scoring=Scoring(
                    task=self._plan.spec.data.task,
                    objective=self._plan.spec.train.objective,
                    labels=self._plan.data.labels,
                ),
            )
        elif self._evaluation.split != split:
            raise EvaluationError(
                f"rows of {split} were reported while {self._evaluation.split} was not evaluated to its end"
            )
        return self._evaluation

    def _write_step(self, store: Store, step: StepRecord) -> None:
        with store.owned(self._job):
            store.add_step(self._job, step)
            self._files.append_step(step)
