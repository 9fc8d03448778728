"""A training run as one value: model, plan and generated rows. Needs no coordinator and no data service."""

import itertools
import json
from collections.abc import Sequence
from dataclasses import asdict, dataclass, field
from typing import Any, Self

import torch

from coordinator.partition import even_partition, explicit_partition
from coordinator.schedule.actions import Action, Barrier
from coordinator.schedule.actions import Op as PlanOp
from coordinator.schedule.channels import peer_of
from coordinator.schedule.custom import make_custom_plan
from coordinator.schedule.plan import Plan, make_forward_plan, make_plan
from stage_worker.comm_place import Place
from stage_worker.engine.commands import Command, Op, Phase, Shape, StepSetting
from stage_worker.engine.loss import NOT_COUNTED
from stage_worker.models.microbatch import Microbatch
from stage_worker.models.seeds import seed_of
from stage_worker.models.slices import StageSlice

_MASKED_SHARE = 0.3
_MASK_TOKEN = 4


@dataclass(frozen=True, slots=True)
class LocalStep:
    """One step by the lengths of its rows."""

    lengths: tuple[int, ...]
    """One entry a row of the global batch: its tokens."""
    evaluates: bool = False
    """Whether it is an evaluation step."""
    evaluates_inside: tuple[int, ...] = ()
    """Lengths of rows that are evaluated between this step's last backward and its update."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LocalCase:
    """Everything that decides a run's numbers."""

    model: dict[str, Any]
    """Values of the Hugging Face config, ``model_type`` included."""
    folder: str | None = None
    """Holds the weights; None: new ones from the seed."""
    schedule: str = "1f1b"
    plan_text: str | None = None
    """The plan of a whole step as CSV, for ``custom``."""
    pp: int = 1
    dp: int = 1
    num_chunks: int = 1
    """Stages on each worker."""
    layers_per_stage: tuple[int, ...] | None = None
    """As in the job file."""
    num_microbatches: int = 1
    """Of one replica and slice."""
    num_slices: int = 1
    group_size: int | None = None
    """For ``interleaved``; see ``make_plan``."""
    warmup: str | tuple[int, ...] | None = None
    """For ``1f1b``; see ``make_plan``."""
    steps: tuple[LocalStep, ...] = ()
    optimizer: str = "adamw"
    learning_rate: float = 1e-4
    lr_schedule: str = "constant"
    warmup_fraction: float = 0.0
    weight_decay: float = 0.01
    max_grad_norm: float = 0.0
    attention: str = "sdpa"
    objective: str = "classification"
    precision: str = "fp32"
    fp32_boundaries: bool = False
    loss_scale: dict[str, Any] | None = None
    """For fp16; its values by the names of the job file."""
    recompute: int | str | tuple[int, ...] = "none"
    """As in the job file."""
    frozen_layers: int | None = None
    seed: int = 0
    records_gradients: bool = False
    """Whether gradients before each update and weights after it are kept."""
    strict: bool = False
    """Whether commands are handed over one by one."""
    watches_activations: bool = False
    """Whether the activations that are really held are counted; it slows the run down."""
    words: int = field(default=50)
    """Size of the vocabulary that rows are drawn from."""
    repeats_rows: bool = False
    """Whether every step has the words and labels of the first, so that they can be learned."""

    @property
    def num_workers(self) -> int:
        """Processes that it takes."""
        return self.pp * self.dp

    @property
    def num_step_microbatches(self) -> int:
        """Microbatches of one replica in one step."""
        return self.num_slices * self.num_microbatches

    def to_json(self) -> str:
        """Return the case as one line of text."""
        return json.dumps(asdict(self))

    @classmethod
    def from_json(cls, text: str) -> Self:
        """Return the case that ``to_json`` wrote."""
        values = json.loads(text)
        values["steps"] = tuple(
            LocalStep(tuple(step["lengths"]), step["evaluates"], tuple(step["evaluates_inside"]))
            for step in values["steps"]
        )
        for name in ("warmup", "recompute", "layers_per_stage"):
            if isinstance(values[name], list):
                values[name] = tuple(values[name])
        return cls(**values)

    def train_plan(self) -> Plan:
        """Return the plan of its training steps."""
        if self.plan_text is not None:
            return make_custom_plan(
                self.plan_text,
                num_workers=self.pp,
                num_chunks=self.num_chunks,
                num_microbatches=self.num_step_microbatches,
            )
        return make_plan(
            self.schedule,
            num_workers=self.pp,
            num_chunks=self.num_chunks,
            num_microbatches=self.num_microbatches,
            num_slices=self.num_slices,
            group_size=self.group_size,
            warmup=self.warmup,
        )

    def evaluation_plan(self) -> Plan:
        """Return the plan of its evaluation steps: the stages are where training has them."""
        return make_forward_plan(self.train_plan().placement, num_microbatches=self.num_step_microbatches)

    def last_worker(self, *, dp_rank: int = 0) -> int:
        """Return the worker of one replica that holds the last stage: losses and outputs are made there."""
        return dp_rank * self.pp + self.train_plan().placement.worker_by_stage[-1]

    def rows_of(self, lengths: Sequence[int], dp_rank: int) -> list[range]:
        """Return the rows of each microbatch of one replica: contiguous, sizes differ by at most one, larger first."""
        replica = split(range(len(lengths)), self.dp)[dp_rank]
        return split(replica, self.num_step_microbatches)

    def setting(self, lengths: Sequence[int], *, phase: Phase, step: int, dp_rank: int) -> StepSetting:
        """Return what holds for one step of one replica."""
        return StepSetting(
            phase=phase,
            split="train" if phase is Phase.TRAIN else "validation",
            step=step,
            denominator=self._denominator(lengths, phase=phase, step=step),
            microbatches=tuple(
                Shape(len(rows), max((lengths[row] for row in rows), default=0))
                for rows in self.rows_of(lengths, dp_rank)
            ),
        )

    def _denominator(self, lengths: Sequence[int], *, phase: Phase, step: int) -> int:
        """Return the rows, or the counted tokens of a token-level objective, of a global batch."""
        if self.objective == "classification":
            return len(lengths)
        labels = batch_of(self, lengths, range(len(lengths)), phase=phase, step=step).labels
        assert labels is not None
        return int((labels != NOT_COUNTED).sum())


def split(rows: range, parts: int) -> list[range]:
    """Cut ``rows`` into contiguous parts whose sizes differ by at most one, larger ones first."""
    size, larger = divmod(len(rows), parts)
    starts = [part * size + min(part, larger) for part in range(parts + 1)]
    return [rows[start:end] for start, end in itertools.pairwise(starts)]


def batch_of(case: LocalCase, lengths: Sequence[int], rows: Sequence[int], *, phase: Phase, step: int) -> Microbatch:
    """Return some rows of a step, padded to the longest; each is a pure function of (seed, phase, step, row)."""
    if case.repeats_rows:
        step = 1
    width = max(lengths[row] for row in rows)
    ids_BL = torch.zeros(len(rows), width, dtype=torch.long)
    types_BL = torch.zeros_like(ids_BL)
    mask_BL = torch.zeros_like(ids_BL)
    chosen_BL = torch.zeros(len(rows), width, dtype=torch.bool)
    classes = []
    for place, row in enumerate(rows):
        length = lengths[row]
        generator = torch.Generator().manual_seed(seed_of(case.seed, "row", phase.name, step, row) % (1 << 62))
        ids_BL[place, :length] = torch.randint(5, case.words, (length,), generator=generator)
        types_BL[place, length // 2 : length] = 1
        mask_BL[place, :length] = 1
        classes.append(int(torch.randint(0, 2, (), generator=generator)))
        chosen_BL[place, :length] = torch.rand(length, generator=generator) < _MASKED_SHARE
    labels = torch.tensor(classes)
    if case.objective == "causal_lm":
        labels = torch.full_like(ids_BL, NOT_COUNTED)
        labels[:, :-1] = ids_BL[:, 1:].masked_fill(mask_BL[:, 1:] == 0, NOT_COUNTED)
    elif case.objective == "masked_lm":
        labels = ids_BL.masked_fill(~chosen_BL, NOT_COUNTED)
        ids_BL = ids_BL.masked_fill(chosen_BL, _MASK_TOKEN)
    return Microbatch(tuple(rows), ids_BL, types_BL, mask_BL, labels)


_OPS = {
    PlanOp.FORWARD: Op.FORWARD,
    PlanOp.BACKWARD: Op.BACKWARD,
    PlanOp.INPUT_GRADIENT: Op.INPUT_GRADIENT,
    PlanOp.WEIGHT_GRADIENT: Op.WEIGHT_GRADIENT,
    PlanOp.SEND_ACTIVATION: Op.SEND_ACTIVATION,
    PlanOp.RECV_ACTIVATION: Op.RECV_ACTIVATION,
    PlanOp.SEND_GRADIENT: Op.SEND_GRADIENT,
    PlanOp.RECV_GRADIENT: Op.RECV_GRADIENT,
    PlanOp.REDUCE: Op.REDUCE,
    PlanOp.STEP: Op.STEP,
}


def layers_of(plan: Plan, *, num_layers: int, layers_per_stage: Sequence[int] | None = None) -> tuple[int, ...]:
    """Return the layers of each stage of a model; without ``layers_per_stage`` split evenly, larger stages first."""
    if layers_per_stage is not None:
        return tuple(layers_per_stage)
    return tuple(
        part.num_layers for part in even_partition(num_layers=num_layers, num_stages=plan.placement.num_stages)
    )


def slices_of(
    plan: Plan, place: Place, *, num_layers: int, layers_per_stage: Sequence[int] | None = None
) -> tuple[StageSlice, ...]:
    """Return one worker's stages of a model; without ``layers_per_stage`` split evenly, larger stages first."""
    splitting = {
        item.stage
        for item in plan.workers[place.pp_rank]
        if isinstance(item, Action) and item.op is PlanOp.INPUT_GRADIENT
    }
    last = plan.placement.num_stages - 1
    sizes = layers_of(plan, num_layers=num_layers, layers_per_stage=layers_per_stage)
    parts = explicit_partition(sizes, num_layers=num_layers)
    return tuple(
        StageSlice(
            stage=stage,
            first_layer=parts[stage].first_layer,
            num_layers=parts[stage].num_layers,
            is_first=stage == 0,
            is_last=stage == last,
            splits_backward=stage in splitting,
        )
        for stage in plan.placement.stages_of(place.pp_rank)
    )


def commands_of(plan: Plan, place: Place) -> tuple[Command, ...]:
    """Return one worker's list of ``plan`` as the engine's commands."""
    return tuple(_command(item, plan, place) for item in plan.workers[place.pp_rank])


def _command(item: Action | Barrier, plan: Plan, place: Place) -> Command:
    op = _OPS[item.op]
    if isinstance(item, Barrier):
        return Command(op)
    peer = place.replica[peer_of(item, plan.placement)] if op.is_transfer else 0
    return Command(op, item.stage, item.microbatch, peer)
