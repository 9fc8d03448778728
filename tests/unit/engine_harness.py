"""An engine with a tiny BERT, random rows and a transport that moves nothing."""

from dataclasses import dataclass, field
from typing import Any

import torch

from stage_worker.engine.commands import Command, Op, Phase, Shape, StepCommands, StepSetting
from stage_worker.engine.engine import Engine
from stage_worker.engine.learning_rate import LearningRate, LearningRateSchedule
from stage_worker.engine.ledger import Ledger
from stage_worker.engine.optimizer import OptimizerName, OptimizerSettings
from stage_worker.engine.recompute import Recompute
from stage_worker.engine.result import StepResult
from stage_worker.models.microbatch import Microbatch
from tests.unit.fake_transport import FakeTransport
from tests.unit.tiny_bert import load_tiny

RATE = LearningRate(base=0.1, schedule=LearningRateSchedule.LINEAR, warmup_fraction=0.0, total_steps=4)
SGD = OptimizerSettings(name=OptimizerName.SGD, learning_rate=RATE, weight_decay=0.0, max_grad_norm=0.0)


@dataclass
class Rows:
    """Random rows; microbatch m has labels m % 2."""

    asked: list[int] = field(default_factory=list)
    width: int | None = None

    def get(self, setting: StepSetting, microbatch: int) -> Microbatch:
        self.asked.append(microbatch)
        shape = setting.microbatches[microbatch]
        generator = torch.Generator().manual_seed(microbatch + 100 * setting.step)
        ids_BL = torch.randint(5, 45, (shape.rows, self.width or shape.width), generator=generator)
        labels = torch.full((shape.rows,), microbatch % 2)
        return Microbatch(tuple(range(shape.rows)), ids_BL, torch.zeros_like(ids_BL), torch.ones_like(ids_BL), labels)


@dataclass
class Harness:
    """An engine of one of ``pp`` stages, or of several."""

    stage: int | tuple[int, ...] = 0
    pp: int = 1
    splits: bool = False
    dropout: float = 0.0
    recompute: Recompute = field(default_factory=Recompute)
    """Of every stage."""
    transport: FakeTransport = field(default_factory=FakeTransport)
    rows: Rows = field(default_factory=Rows)
    ledger: Ledger = field(default_factory=Ledger)
    done: list[tuple[Op, int]] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.model = load_tiny(
            stage=self.stage,
            pp=self.pp,
            splits=self.splits,
            hidden_dropout_prob=self.dropout,
            attention_probs_dropout_prob=self.dropout,
        )
        self.engine = Engine(
            self.model,
            optimizer=SGD,
            seed=0,
            dp=1,
            dp_rank=0,
            worker=self.stage if isinstance(self.stage, int) else 0,
            worker_by_stage=range(self.pp) if isinstance(self.stage, int) else [0] * self.pp,
            transport=self.transport,
            batches=self.rows,
            ledger=self.ledger,
            recompute=dict.fromkeys(self.model.stages, self.recompute),
            on_command=lambda command, seq: self.done.append((command.op, seq)),
        )

    def run(self, *commands: Command, ends: bool = False, first_seq: int = 1, **changes: Any) -> StepResult | None:
        return self.engine.run(StepCommands(setting(**changes), first_seq, commands, ends))

    def weights(self) -> dict[str, torch.Tensor]:
        return {name: tensor.clone() for stage in self.model.stages for name, tensor in self.model.state(stage).items()}

    def gradients(self) -> dict[str, torch.Tensor]:
        """Return the gradients that are there, by name."""
        return {name: p.grad.clone() for name, p in self.model.held.items() if p.grad is not None}


def setting(
    *, phase: Phase = Phase.TRAIN, step: int = 1, shapes: tuple[Shape, ...] = (Shape(2, 5), Shape(3, 4)), rows: int = 5
) -> StepSetting:
    return StepSetting(phase=phase, split="train", step=step, denominator=rows, microbatches=shapes)


def command(op: Op, *, stage: int = 0, microbatch: int = 0, peer: int = 0) -> Command:
    return Command(op, stage, microbatch, peer)


WHOLE = (
    command(Op.FORWARD),
    command(Op.BACKWARD),
    command(Op.FORWARD, microbatch=1),
    command(Op.BACKWARD, microbatch=1),
    command(Op.REDUCE),
    command(Op.STEP),
)
