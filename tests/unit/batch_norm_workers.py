"""Engines with a whole tower of batch norm layers, and the same tower in plain torch.

N values of each channel, C channels.
"""

import copy
import dataclasses
import threading
from dataclasses import dataclass, field
from typing import Any

import torch
import torch.nn.functional as F  # noqa: N812  torch's own name for it
from torch import nn

from stage_worker.engine.commands import Command, Op, Phase, Shape, StepCommands, StepSetting
from stage_worker.engine.engine import Engine
from stage_worker.engine.ledger import Ledger
from stage_worker.engine.precision import FP32, Precision
from stage_worker.engine.recompute import Recompute
from stage_worker.engine.result import StepResult
from stage_worker.models.family import Block
from stage_worker.models.microbatch import Microbatch
from tests.unit.batch_norm_model import BLOCKS, Tower, load, norm
from tests.unit.engine_harness import SGD, Rows, command, setting
from tests.unit.fake_transport import FakeTransport

SHAPES = (Shape(2, 5), Shape(0, 4), Shape(3, 4), Shape(1, 7))
ROWS = 6
F_THEN_B = "F0 F1 F2 F3 B0 B1 B2 B3"


@dataclass
class TwinTransport(FakeTransport):
    """Adds over replicas that run in threads, in rank order; with one of them it returns what it is given."""

    barrier: threading.Barrier = field(default_factory=lambda: threading.Barrier(1, timeout=30))
    parts: dict[int, torch.Tensor] = field(default_factory=dict)
    dp_rank: int = 0
    sums: list[tuple[int, ...]] = field(default_factory=list)

    def add_over_replicas(self, tensor: torch.Tensor) -> torch.Tensor:
        self.sums.append(tuple(tensor.shape))
        self.parts[self.dp_rank] = tensor
        self.barrier.wait()
        total = self.parts[0].clone()
        for rank in range(1, len(self.parts)):
            total += self.parts[rank]
        self.barrier.wait()
        return total


@dataclass
class OwnRows(Rows):
    """Rows that no other replica has."""

    dp_rank: int = 0

    def get(self, setting: StepSetting, microbatch: int) -> Microbatch:
        return super().get(dataclasses.replace(setting, step=setting.step + 50 * self.dp_rank), microbatch)


class Worker:
    """An engine with a whole tower, in any number of stages."""

    def __init__(
        self,
        *,
        pp: int = 1,
        dp: int = 1,
        transport: TwinTransport | None = None,
        precision: Precision = FP32,
        recompute: Recompute | None = None,
        blocks: tuple[Block, ...] = BLOCKS,
        kind: type[nn.Module] = nn.BatchNorm1d,
        **changes: Any,
    ) -> None:
        self.transport = transport or TwinTransport()
        self.rows = OwnRows(dp_rank=self.transport.dp_rank)
        self.pp = pp
        self.model = load(norm(kind, **changes), stages=tuple(range(pp)), pp=pp, blocks=blocks)
        self.plain = copy.deepcopy(self.model.model)
        self.engine = Engine(
            self.model,
            optimizer=SGD,
            seed=0,
            dp=dp,
            dp_rank=self.transport.dp_rank,
            worker=0,
            worker_by_stage=[0] * pp,
            transport=self.transport,
            batches=self.rows,
            ledger=Ledger(),
            precision=precision,
            recompute={stage: recompute or Recompute() for stage in range(pp)},
        )

    def run(self, words: str = F_THEN_B, *, ends: bool = True, **changes: Any) -> StepResult | None:
        """Obey words such as ``F0`` on every stage, then the end of a step."""
        commands = tuple(each for word in words.split() for each in self._on_all_stages(word))
        if ends and changes.get("phase", Phase.TRAIN) is Phase.TRAIN:
            commands += (command(Op.REDUCE), command(Op.STEP))
        known = {"shapes": SHAPES, "rows": ROWS, **changes}
        return self.engine.run(StepCommands(setting(**known), 1, commands, ends))

    def _on_all_stages(self, word: str) -> list[Command]:
        op, stages = {"F": (Op.FORWARD, range(self.pp)), "B": (Op.BACKWARD, reversed(range(self.pp)))}[word[0]]
        return [command(op, stage=stage, microbatch=int(word[1:])) for stage in stages]

    def state(self) -> dict[str, torch.Tensor]:
        return {name: tensor.clone() for stage in self.model.stages for name, tensor in self.model.state(stage).items()}

    def statistics(self) -> dict[str, torch.Tensor]:
        return {name: tensor for name, tensor in self.state().items() if "running" in name or "tracked" in name}


class Plain:
    """The same tower in plain torch: every microbatch alone, and layers aside that are given all of a step at once."""

    def __init__(self, model: Tower, **changes: Any) -> None:
        self.model = copy.deepcopy(model).train()
        self.whole = {
            f"layers.{index}.norm": nn.BatchNorm1d(layer.norm.num_features, **changes)
            for index, layer in enumerate(self.model.layers)
        }
        self.seen: dict[str, list[torch.Tensor]] = {name: [] for name in self.whole}
        for name in self.whole:
            self.model.get_submodule(name).register_forward_pre_hook(self._keep(name))

    def _keep(self, name: str) -> Any:
        def hook(layer: nn.Module, inputs: tuple[torch.Tensor]) -> None:
            (x,) = inputs
            self.seen[name].append(x.detach().transpose(0, 1).flatten(1).t())  # to N, C

        return hook

    def step(self, workers: list[Worker], *, step: int, rate: float, shapes: tuple[Shape, ...] = SHAPES) -> None:
        """Do what a step of all replicas does."""
        self.model.zero_grad()
        for worker in workers:
            known = setting(shapes=shapes, step=step)
            for microbatch, shape in enumerate(shapes):
                if shape.rows:
                    batch = worker.rows.get(known, microbatch)
                    loss = F.cross_entropy(self.model(batch.input_ids_BL), batch.labels, reduction="sum")
                    (loss / (ROWS * len(workers))).backward()
        with torch.no_grad():
            for parameter in self.model.parameters():
                parameter.sub_(parameter.grad, alpha=rate)
        for name, layer in self.whole.items():
            layer(torch.cat(self.seen[name]))
            self.seen[name].clear()

    def statistics(self) -> dict[str, torch.Tensor]:
        return {f"{name}.{key}": buffer for name, layer in self.whole.items() for key, buffer in layer.named_buffers()}

    def parameters(self) -> dict[str, torch.Tensor]:
        return {name: parameter.detach() for name, parameter in self.model.named_parameters()}
