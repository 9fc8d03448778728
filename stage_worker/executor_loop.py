"""Takes commands, lets the engine obey them, and tells what came of them."""

import time
from collections.abc import Callable
from pathlib import Path

import structlog
from takt.v1 import workers_pb2 as pb

from stage_worker.batches import DataServiceSource
from stage_worker.checkpoint import shards_of
from stage_worker.clock import ClockOffset
from stage_worker.decode import encode_report, encode_rows
from stage_worker.engine.commands import Command, Op, Phase, StepCommands, StepSetting
from stage_worker.engine.engine import Engine
from stage_worker.engine.failure import CommandFailed
from stage_worker.engine.ledger import Activity, Ledger
from stage_worker.engine.result import StepResult
from stage_worker.executor_link import CoordinatorLink
from stage_worker.models.loaded import LoadedModel
from stage_worker.record import RecordWriter
from stage_worker.restore import encode_agreed
from stage_worker.saving import Saved, Saving
from stage_worker.spans import encode_spans

_MOST_SPANS = 20_000
"""Of one report, about 1 MiB."""

log = structlog.get_logger()


class CommandLoop:
    """The life of an executor between ready and stop."""

    def __init__(
        self,
        link: CoordinatorLink,
        *,
        model: LoadedModel,
        make_engine: Callable[[Callable[[Command, int], None], Callable[[], None]], Engine],
        batches: DataServiceSource,
        ledger: Ledger,
        record: RecordWriter,
        clock: ClockOffset,
        held_bytes: Callable[[], int],
        checkpoints: Path,
    ) -> None:
        """Prepare to obey.

        Args:
            link: where commands come from and reports go.
            model: the worker's part.
            make_engine: makes the engine, given whom to tell of every command that was done and of every update that
                comes.
            batches: the engine's; told of steps that come and are done.
            ledger: the engine's.
            record: shared with the agent.
            clock: how this process's clock stands to the coordinator's.
            held_bytes: tells how much memory is held now.
            checkpoints: folder of the job's checkpoints.
        """
        self._link = link
        self._model = model
        self._saving = Saving()
        self._engine = make_engine(self._note, self._before_update)
        self._batches = batches
        self._ledger = ledger
        self._record = record
        self._clock = clock
        self._held_bytes = held_bytes
        self._checkpoints = checkpoints
        self._stages = sorted(model.stages)
        self._reported = ledger.seconds()
        self._sent_bytes = self._received_bytes = 0

    def run(self) -> None:
        """Obey until told to stop.

        Raises:
            CoordinatorLostError: the stream of commands ended before.
            CommandFailed: a command failed.
            FenceError, MessageError: commands came that cannot be obeyed.
        """
        while True:
            with self._ledger.during(Activity.WAIT_COMMAND):
                commands = self._link.commands()
            if self._obey(commands):
                return

    def _obey(self, commands: StepCommands) -> bool:
        """Obey commands and tell what is to be told; return whether that was the last."""
        ops = [command.op for command in commands.commands]
        last_seq = commands.first_seq + len(ops) - 1
        result = None
        match ops:
            case [Op.STOP]:
                with self._ledger.during(Activity.SAVE):
                    self._saving.finish()
                self._note(commands.commands[0], last_seq)
            case [Op.SAVE]:
                with self._ledger.during(Activity.SAVE):
                    self._save(commands)
                self._note(commands.commands[0], last_seq)
            case _:
                result = self._engine.run(commands)
        if commands.acknowledge:
            self._link.say(pb.ExecuteRequest(done=pb.CommandDone(seq=last_seq)))
        if result is not None:
            self._batches.release(commands.setting)
            self._report(result, commands.setting)
        return ops == [Op.STOP]

    def _note(self, command: Command, seq: int) -> None:
        self._record.finish_command(command.op, seq)
        self._record.set_in_flight(self._engine.in_flight_by_stage)

    def _before_update(self) -> None:
        if self._saving.needs_copies:
            with self._ledger.during(Activity.SAVE):
                self._saving.before_update()

    def _report(self, result: StepResult, setting: StepSetting) -> None:
        self._sent_bytes += result.sent_bytes
        self._received_bytes += result.received_bytes
        self._record.set_transferred(sent_bytes=self._sent_bytes, received_bytes=self._received_bytes)
        for rows in encode_rows(result.rows, setting=setting):
            self._link.say(pb.ExecuteRequest(rows=rows))
        now = self._ledger.seconds()
        passed = {account: seconds - self._reported.get(account, 0.0) for account, seconds in now.items()}
        self._reported = now
        report = encode_report(result, after=setting.after, seconds=passed, stages=self._stages)
        spans = self._ledger.take_spans(), self._batches.take_reads()
        if result.phase is Phase.TRAIN:
            report.spans.extend(
                encode_spans(spans[0], transfers=result.transfers, reads=spans[1], num_most=_MOST_SPANS)
            )
        report.memory_bytes = self._held_bytes()
        if (reading := self._clock.best) is not None:
            report.clock.name = self._clock.name
            report.clock.offset_seconds, report.clock.error_seconds = reading.offset_seconds, reading.error_seconds
        report.sent = time.monotonic()
        self._link.say(pb.ExecuteRequest(step=report))
        if result.phase is Phase.TRAIN:
            log.info(
                "step done",
                step=result.step,
                seconds=round(sum(passed.values()), 4),
                learning_rate=result.learning_rate,
            )

    def _save(self, commands: StepCommands) -> None:
        step, began = commands.setting.step, time.monotonic()
        agreed = encode_agreed(self._engine.agreed)
        try:
            shards = shards_of(self._model, optimizer_state=self._engine.optimizer_state, agreed=self._engine.agreed)
        except Exception as error:
            raise CommandFailed(error, command=commands.commands[0], setting=commands.setting) from error

        def told(saved: Saved) -> None:
            message = pb.ShardsSaved(step=step, agreed=agreed, error=saved.error, seconds=saved.seconds)
            for shard in saved.shards:
                message.shards.add(
                    file=shard.file, kind=shard.kind, stage=shard.stage, sha256=shard.sha256, bytes=shard.num_bytes
                )
            self._link.say(pb.ExecuteRequest(saved=message))
            log.info(
                "shards saved",
                step=step,
                files=[shard.file for shard in saved.shards],
                error=saved.error or None,
                blocked_seconds=round(blocked_seconds + saved.copy_seconds, 4),
            )

        self._saving.finish()
        blocked_seconds = time.monotonic() - began
        self._saving.begin(self._checkpoints / f"step-{step}", shards, told=told)
