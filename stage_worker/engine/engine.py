"""The engine: obeys the commands of a step, one at a time and in order."""

from collections.abc import Callable, Mapping, Sequence
from functools import partial

import torch

from stage_worker.engine.agreed import Agreed
from stage_worker.engine.batch_source import BatchSource, DataError
from stage_worker.engine.commands import Command, Op, Phase, StepCommands, StepSetting
from stage_worker.engine.dropout import DropoutSeeds
from stage_worker.engine.exchange import Exchange
from stage_worker.engine.failure import CommandFailed, CommandOrderError
from stage_worker.engine.ledger import About, Activity, Ledger
from stage_worker.engine.loss import row_outputs
from stage_worker.engine.open_step import OpenStep
from stage_worker.engine.optimizer import OptimizerSettings, Stored
from stage_worker.engine.precision import FP32, ComputeType, Precision
from stage_worker.engine.recompute import Recompute
from stage_worker.engine.result import StepResult
from stage_worker.engine.running_statistics import RunningStatistics
from stage_worker.engine.shared import SharedSums, routes_of
from stage_worker.engine.stage import Stage
from stage_worker.engine.table_gradient import bind_tables
from stage_worker.engine.transport import TransferKind, Transport
from stage_worker.engine.update import Update
from stage_worker.engine.weights import Weights
from stage_worker.models.family import Inputs
from stage_worker.models.loaded import LoadedModel
from stage_worker.models.microbatch import Microbatch

OnCommand = Callable[[Command, int], None]
"""Told of each command that was done, and its sequence number."""


class Engine:
    """One worker's stages and optimizer. Never decides an order; called from one thread only.

    A training step and an evaluation may be open at once; the evaluation touches nothing of the other.
    """

    def __init__(
        self,
        model: LoadedModel,
        *,
        optimizer: OptimizerSettings,
        seed: int,
        dp: int,
        dp_rank: int,
        worker: int,
        worker_by_stage: Sequence[int],
        transport: Transport,
        batches: BatchSource,
        ledger: Ledger,
        precision: Precision = FP32,
        recompute: Mapping[int, Recompute] | None = None,
        on_command: OnCommand | None = None,
        before_update: Callable[[], None] = lambda: None,
    ) -> None:
        """Take over the worker's part of a model, in fp32.

        Args:
            model: loaded; its parameters are updated in place.
            optimizer: what to update them with.
            seed: of the job, for dropout.
            dp: replicas.
            dp_rank: this one.
            worker: this one.
            worker_by_stage: the workers of this replica that hold each stage, stage 0 first.
            transport: joined with all workers of the attempt.
            batches: where rows come from.
            ledger: told of every activity.
            precision: what layers compute in, and what travels.
            recompute: what is done again, by own stage; a stage that is not named keeps all.
            on_command: told of every command that was done.
            before_update: called before weights, moments and statistics change.
        """
        self._model = model
        self._transport = transport
        self._batches = batches
        self._ledger = ledger
        self._on_command = on_command or (lambda *_: None)
        self._precision = precision
        weights = Weights(model, dtype=precision.compute.dtype)
        if precision.compute is ComputeType.FP32 and model.device.type == "cpu":
            # Elsewhere a whole table is quick to add, and to find which rows were read is to wait for the device;
            # in other types a microbatch's gradient is not the sum.
            bind_tables(model)
        self._statistics = RunningStatistics(model)
        self._update = Update(
            model,
            weights,
            shared=SharedSums(weights, routes_of(model, worker_by_stage=worker_by_stage), transport, worker=worker),
            statistics=self._statistics,
            optimizer=optimizer,
            loss_scale=precision.loss_scale,
            dp=dp,
            transport=transport,
            ledger=ledger,
            before_update=before_update,
        )
        seeds = DropoutSeeds(seed=seed, dp_rank=dp_rank, device=model.device)
        self._stages = {
            stage: Stage(
                model,
                weights,
                stage=stage,
                seeds=seeds,
                recompute=(recompute or {}).get(stage, Recompute()),
                ledger=ledger,
            )
            for stage in model.stages
        }
        self._open: dict[Phase, OpenStep] = {}

    @property
    def in_flight(self) -> int:
        """Microbatches whose forward was begun and whose backward is not done, added over this worker's stages."""
        return sum(stage.in_flight for stage in self._stages.values())

    @property
    def in_flight_by_stage(self) -> dict[int, int]:
        """The same by global stage."""
        return {number: stage.in_flight for number, stage in self._stages.items()}

    @property
    def agreed(self) -> Agreed:
        """What every worker has alike after the last step; a checkpoint needs it beside weights and moments."""
        return self._update.agreed

    def optimizer_state(self, stage: int) -> dict[str, torch.Tensor]:
        """Return the optimizer's tensors of one own stage, such as ``NAME.exp_avg``; see also ``LoadedModel.state``."""
        return self._update.optimizer_state(stage)

    def restore(self, agreed: Agreed, stored: Stored) -> None:
        """Go on from a saved state, before the first command; the model was loaded from the same.

        Args:
            agreed: what all workers had alike.
            stored: what ``optimizer_state`` returned of all stages.

        Raises:
            RestoreError: a tensor of the optimizer is missing or of another shape.
        """
        self._update.restore(agreed, stored)

    def run(self, commands: StepCommands) -> StepResult | None:
        """Obey ``commands`` in order; return the step's result where they end it.

        Commands of one step may come in several calls. ``SAVE`` and ``STOP`` are the caller's to obey.

        Raises:
            CommandFailed: a command failed. The engine is of no more use.
        """
        command: Command | None = None
        try:
            with self._ledger.during(Activity.OTHER):
                step = self._step(commands.setting)
                for seq, command in enumerate(commands.commands, start=commands.first_seq):
                    self._obey(command, step)
                    self._on_command(command, seq)
                if not commands.ends_step:
                    return None
                command = None
                return self._end(step, last_seq=commands.first_seq + len(commands.commands) - 1)
        except Exception as error:
            raise CommandFailed(error, command=command, setting=commands.setting) from error

    def _step(self, setting: StepSetting) -> OpenStep:
        step = self._open.get(setting.phase)
        if step is None:
            hidden_size = self._model.config.hidden_size
            exchange = Exchange(
                self._transport,
                setting,
                stages=self._stages,
                hidden_size=hidden_size,
                precision=self._precision,
                clock=self._ledger.now,
            )
            holds_last_stage = any(stage.is_last for stage in self._stages.values())
            step = OpenStep(setting=setting, exchange=exchange, holds_last_stage=holds_last_stage)
            self._open[setting.phase] = step
        elif step.setting != setting:
            raise CommandOrderError(f"step {setting.step} began before step {step.setting.step} ended")
        return step

    def _obey(self, command: Command, step: OpenStep) -> None:
        if command.op.is_compute or command.op.is_transfer:
            if command.stage not in self._stages:
                raise CommandOrderError(f"stage {command.stage} is not here; here are {sorted(self._stages)}")
            if not 0 <= command.microbatch < len(step.setting.microbatches):
                raise CommandOrderError(f"the step has {len(step.setting.microbatches)} microbatches")
            if step.setting.microbatches[command.microbatch].rows == 0:
                return  # it keeps its place in the plan, at both ends of a transfer
        match command.op:
            case Op.FORWARD:
                self._forward(command, step)
            case Op.BACKWARD | Op.INPUT_GRADIENT:
                self._backward(command, step)
            case Op.WEIGHT_GRADIENT:
                about = command.stage, command.microbatch
                with self._ledger.during(Activity.WEIGHT_GRADIENT, about=about):
                    self._stages[command.stage].weight_gradient(microbatch=command.microbatch)
            case Op.SEND_ACTIVATION | Op.SEND_GRADIENT:
                step.exchange.send(command)
            case Op.RECV_ACTIVATION | Op.RECV_GRADIENT:
                step.exchange.receive(command)
            case Op.REDUCE:
                self._update.add_up(step)
            case Op.STEP:
                self._update.apply(step)
            case Op.SAVE | Op.STOP:
                raise CommandOrderError(f"{command.op.name} is the executor's to obey")

    def _forward(self, command: Command, step: OpenStep) -> None:
        stage, microbatch = self._stages[command.stage], command.microbatch
        about = command.stage, microbatch
        batch = self._rows(step.setting, about)
        with self._ledger.during(Activity.FORWARD, about=about):
            inputs = self._prepare(batch)
        h_BLD = None
        if not stage.is_first:
            with self._ledger.during(Activity.WAIT_ACTIVATION, about=about):
                h_BLD = step.exchange.take(
                    kind=TransferKind.ACTIVATION, boundary=command.stage - 1, microbatch=microbatch
                )
        with self._ledger.during(Activity.FORWARD, about=about):
            if step.setting.phase is Phase.TRAIN:
                self._set_training(True)
                with self._statistics.counting(microbatch):
                    output = stage.forward(
                        inputs,
                        h_BLD,
                        prepare=partial(self._prepare, batch),
                        step=step.setting.step,
                        microbatch=microbatch,
                        is_last_microbatch=microbatch == len(step.setting.microbatches) - 1,
                    )
                step.peak_in_flight = max(step.peak_in_flight, self.in_flight)
            else:
                self._set_training(False)
                output = stage.infer(inputs, h_BLD)
        if not stage.is_last:
            step.exchange.put(output, kind=TransferKind.ACTIVATION, boundary=command.stage, microbatch=microbatch)
        elif step.setting.phase is Phase.TRAIN:
            step.losses[microbatch] = output
        else:
            step.outputs[microbatch] = row_outputs(output, inputs.batch)

    def _backward(self, command: Command, step: OpenStep) -> None:
        stage, microbatch = self._stages[command.stage], command.microbatch
        about = command.stage, microbatch
        if stage.is_last:
            gradient = torch.tensor(self._update.loss_factor / step.setting.denominator, device=self._model.device)
        else:
            with self._ledger.during(Activity.WAIT_GRADIENT, about=about):
                gradient = step.exchange.take(kind=TransferKind.GRADIENT, boundary=command.stage, microbatch=microbatch)
        self._set_training(True)  # a forward that is done again is one of training
        if command.op is Op.BACKWARD:
            with self._ledger.during(Activity.BACKWARD, about=about):
                input_gradient = stage.backward(gradient, microbatch=microbatch)
        else:
            with self._ledger.during(Activity.INPUT_GRADIENT, about=about):
                input_gradient = stage.input_gradient(gradient, microbatch=microbatch)
        if input_gradient is not None:
            step.exchange.put(
                input_gradient, kind=TransferKind.GRADIENT, boundary=command.stage - 1, microbatch=microbatch
            )

    def _end(self, step: OpenStep, *, last_seq: int) -> StepResult:
        with self._ledger.during(Activity.WAIT_SEND):
            self._transport.flush()
        step.exchange.check_empty()
        if step.setting.phase is Phase.TRAIN and self.in_flight:
            raise CommandOrderError(f"{self.in_flight} microbatches are in flight at the end of the step")
        del self._open[step.setting.phase]
        return step.result(last_seq=last_seq)

    def _rows(self, setting: StepSetting, about: About) -> Microbatch:
        _, microbatch = about
        with self._ledger.during(Activity.WAIT_DATA, about=about):
            batch = self._batches.get(setting, microbatch)
        shape = setting.microbatches[microbatch]
        found = tuple(batch.attention_mask_BL.shape)
        if found != (shape.rows, shape.width):
            raise DataError(f"microbatch {microbatch} has shape {found}, announced was {(shape.rows, shape.width)}")
        return batch

    def _prepare(self, batch: Microbatch) -> Inputs:
        """Make of rows on the CPU what the layers take, on the device."""
        model = self._model
        # Made on the CPU: on a GPU the library's look at the mask would wait for the device.
        context = model.family.context(model.config, batch.attention_mask_BL, self._precision.compute.dtype)
        moved = {name: value.to(model.device) if value is not None else None for name, value in context.items()}
        return Inputs(batch.to(model.device), moved)

    def _set_training(self, training: bool) -> None:
        if self._model.model.training is not training:
            self._model.model.train(training)
