"""One worker of a local case: the executor's engine, commands from a list."""

import resource
import time
from contextlib import nullcontext
from dataclasses import dataclass, field
from pathlib import Path

import torch

from benchmarks.local_case import LocalCase, LocalStep, batch_of, commands_of, layers_of, slices_of
from benchmarks.local_live import LiveActivations
from stage_worker.comm_place import Place
from stage_worker.engine.commands import Op, Phase, StepCommands, StepSetting
from stage_worker.engine.engine import Engine
from stage_worker.engine.learning_rate import LearningRate, LearningRateSchedule
from stage_worker.engine.ledger import Activity, Ledger
from stage_worker.engine.loss_scale import LossScaleSettings
from stage_worker.engine.optimizer import OptimizerName, OptimizerSettings
from stage_worker.engine.precision import ComputeType, Precision
from stage_worker.engine.result import StepResult
from stage_worker.engine.transport import Transport
from stage_worker.executor_job import recompute_of
from stage_worker.models.config import TaskNeeds, fit_to_task, new_config, pretrained_config
from stage_worker.models.loaded import LoadedModel
from stage_worker.models.loading import load_model
from stage_worker.models.microbatch import Microbatch
from stage_worker.models.objective import Objective

_STATM = Path("/proc/self/statm")


@dataclass(slots=True)
class LocalRows:
    """The batch source of one replica."""

    case: LocalCase
    dp_rank: int
    lengths: dict[tuple[Phase, int], tuple[int, ...]] = field(default_factory=dict)

    def get(self, setting: StepSetting, microbatch: int) -> Microbatch:
        """See ``BatchSource.get``."""
        lengths = self.lengths[setting.phase, setting.step]
        rows = self.case.rows_of(lengths, self.dp_rank)[microbatch]
        return batch_of(self.case, lengths, rows, phase=setting.phase, step=setting.step)


@dataclass(slots=True)
class LocalResult:
    """What one worker has to tell about a case."""

    steps: list[StepResult] = field(default_factory=list)
    """In the order they ended."""
    seconds: list[float] = field(default_factory=list)
    """Duration of each of them."""
    resident_bytes: list[int] = field(default_factory=list)
    """Memory of the process after each training step, where /proc tells it."""
    tensors: dict[str, torch.Tensor] = field(default_factory=dict)
    """``gradient/STEP/NAME`` and ``weight/STEP/NAME`` where recorded; ``final/NAME`` and ``moment/NAME`` always."""
    activities: dict[str, float] = field(default_factory=lambda: dict.fromkeys(Activity.__members__, 0.0))
    """Seconds by activity, of all stages together, loading left out."""
    parameters: int = 0
    live_peak: int | None = None
    """Most microbatches that were really held at once, over the worker's stages, where the case watches them."""
    live_at_end: int | None = None
    """Those that were still held behind the last step."""
    live_share_between_halves: float | None = None
    """See ``LiveActivations``."""


def load_part(case: LocalCase, place: Place) -> LoadedModel:
    """Return the layers of one worker, all its stages."""
    needs = TaskNeeds(labels=("no", "yes"), num_labels=2, pad_token_id=0, vocabulary_size=case.words)
    objective = Objective(case.objective)
    if case.folder is not None:
        config = pretrained_config(Path(case.folder), objective)
    else:
        config = new_config(case.model, needs, objective)
    fit_to_task(config, needs, attention=case.attention)
    plan = case.train_plan()
    sizes = {"num_layers": config.num_hidden_layers, "layers_per_stage": case.layers_per_stage}
    return load_model(
        config,
        objective=objective,
        slices=slices_of(plan, place, **sizes),
        layers_by_stage=layers_of(plan, **sizes),
        folder=Path(case.folder) if case.folder is not None else None,
        seed=case.seed,
        device=torch.device("cpu"),
        frozen_layers=case.frozen_layers,
    )


def optimizer_of(case: LocalCase) -> OptimizerSettings:
    """Return the optimizer's settings of a case."""
    return OptimizerSettings(
        name=OptimizerName(case.optimizer),
        learning_rate=LearningRate(
            base=case.learning_rate,
            schedule=LearningRateSchedule(case.lr_schedule),
            warmup_fraction=case.warmup_fraction,
            total_steps=sum(not step.evaluates for step in case.steps),
        ),
        weight_decay=case.weight_decay,
        max_grad_norm=case.max_grad_norm,
    )


def precision_of(case: LocalCase) -> Precision:
    """Return the element types of a case."""
    return Precision(
        compute=ComputeType(case.precision),
        fp32_boundaries=case.fp32_boundaries,
        loss_scale=LossScaleSettings(**case.loss_scale) if case.loss_scale is not None else None,
    )


class LocalWorker:
    """One worker's engine and the lists it obeys."""

    def __init__(self, case: LocalCase, place: Place, model: LoadedModel, transport: Transport) -> None:
        """Take the worker's part of the model, and a transport that is joined with the other workers."""
        self._case = case
        self._place = place
        self._model = model
        self._rows = LocalRows(case, place.dp_rank)
        self._ledger = Ledger()
        self._live = LiveActivations(model) if case.watches_activations else None
        self._engine = Engine(
            model,
            optimizer=optimizer_of(case),
            seed=case.seed,
            dp=case.dp,
            dp_rank=place.dp_rank,
            worker=place.worker,
            worker_by_stage=[place.replica[rank] for rank in case.train_plan().placement.worker_by_stage],
            precision=precision_of(case),
            recompute={stage: recompute_of(case.recompute, stage) for stage in model.stages},
            transport=transport,
            batches=self._rows,
            ledger=self._ledger,
            on_command=self._live.command_done if self._live is not None else None,
        )
        self._commands = {
            Phase.TRAIN: commands_of(case.train_plan(), place),
            Phase.EVALUATE: commands_of(case.evaluation_plan(), place),
        }
        self._next = {Phase.TRAIN: 1, Phase.EVALUATE: 1}
        self._seq = 1

    def run(self) -> LocalResult:
        """Obey all steps of the case."""
        result = LocalResult(parameters=self._model.num_parameters)
        before = self._ledger.seconds()
        with self._live if self._live is not None else nullcontext():
            for step in self._case.steps:
                if step.evaluates:
                    self._evaluate(step.lengths, result)
                else:
                    self._train(step, result)
                self._ledger.take_spans()  # nobody else does, and they would pile up
        if self._live is not None:
            result.live_peak, result.live_at_end = self._live.peak, self._live.num_held
            result.live_share_between_halves = self._live.share_between_halves
        after = self._ledger.seconds()
        result.activities = {
            a.name: sum(passed - before.get(account, 0.0) for account, passed in after.items() if account[0] is a)
            for a in Activity
        }
        for stage in self._model.stages:
            for name, tensor in self._model.state(stage).items():
                result.tensors[f"final/{name}"] = tensor
            for name, tensor in self._engine.optimizer_state(stage).items():
                result.tensors[f"moment/{name}"] = tensor
        return result

    def _train(self, step: LocalStep, result: LocalResult) -> None:
        setting = self._setting(step.lengths, Phase.TRAIN)
        commands = self._commands[Phase.TRAIN]
        cut = next(i for i, command in enumerate(commands) if command.op is Op.REDUCE)
        start = time.perf_counter()
        inner = 0.0
        if step.evaluates_inside:
            self._obey(setting, slice(0, cut), result)
            inner = time.perf_counter()
            self._evaluate(step.evaluates_inside, result)
            start += time.perf_counter() - inner
        else:
            cut = 0
        if self._case.records_gradients:
            self._obey(setting, slice(cut, -1), result)
            self._record("gradient", setting.step, result)
            self._obey(setting, slice(len(commands) - 1, None), result)
            self._record("weight", setting.step, result)
        else:
            self._obey(setting, slice(cut, None), result)
        result.seconds.append(time.perf_counter() - start)
        if _STATM.exists():
            result.resident_bytes.append(int(_STATM.read_text().split()[1]) * resource.getpagesize())

    def _evaluate(self, lengths: tuple[int, ...], result: LocalResult) -> None:
        start = time.perf_counter()
        self._obey(self._setting(lengths, Phase.EVALUATE), slice(0, None), result)
        result.seconds.append(time.perf_counter() - start)

    def _setting(self, lengths: tuple[int, ...], phase: Phase) -> StepSetting:
        number = self._next[phase]
        self._next[phase] += 1
        self._rows.lengths[phase, number] = lengths
        return self._case.setting(lengths, phase=phase, step=number, dp_rank=self._place.dp_rank)

    def _obey(self, setting: StepSetting, part: slice, result: LocalResult) -> None:
        every = self._commands[setting.phase]
        start, stop, _ = part.indices(len(every))
        size = 1 if self._case.strict else max(stop - start, 1)
        for first in range(start, stop, size):
            commands = every[first : min(first + size, stop)]
            ends = first + size >= len(every)
            done = self._engine.run(StepCommands(setting, self._seq, commands, ends))
            self._seq += len(commands)
            if done is not None:
                result.steps.append(done)

    def _record(self, what: str, step: int, result: LocalResult) -> None:
        for name, parameter in self._model.held.items():
            value = parameter.grad if what == "gradient" else parameter
            if value is not None:
                result.tensors[f"{what}/{step}/{name}"] = value.detach().clone()
