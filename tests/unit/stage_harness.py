"""One stage of a tiny BERT that obeys words, and the memory that it keeps alive between them."""

from typing import Any

import torch

from stage_worker.engine.commands import Shape
from stage_worker.engine.dropout import DropoutSeeds
from stage_worker.engine.ledger import Ledger
from stage_worker.engine.recompute import Recompute
from stage_worker.engine.stage import Stage
from stage_worker.engine.weights import Weights
from stage_worker.models.family import Inputs
from stage_worker.models.loaded import LoadedModel
from tests.unit.engine_harness import Rows, setting
from tests.unit.live_storages import LiveStorages
from tests.unit.tiny_bert import CPU, load_tiny

SHAPES = (Shape(2, 5), Shape(3, 4), Shape(1, 7), Shape(4, 3))
WHOLE = "F0 B0 F1 B1 F2 B2 F3 B3"
NOTHING = Recompute()


class OneStage:
    """One stage of a tiny BERT with rows, hidden states and gradients of its own for each microbatch."""

    def __init__(
        self,
        *,
        stage: int,
        pp: int,
        splits: bool,
        dropout: float = 0.0,
        shapes: tuple[Shape, ...] = SHAPES,
        recompute: Recompute = NOTHING,
        ledger: Ledger | None = None,
        **changes: Any,
    ) -> None:
        self.shapes = shapes
        rates = {"hidden_dropout_prob": dropout, "attention_probs_dropout_prob": dropout}
        self.model: LoadedModel = load_tiny(stage=stage, pp=pp, splits=splits, **rates, **changes)
        self.model.model.train(dropout > 0)
        seeds = DropoutSeeds(seed=5, dp_rank=0, device=CPU) if dropout else None
        self.stage = Stage(
            self.model,
            Weights(self.model, dtype=torch.float32),
            stage=stage,
            seeds=seeds,
            recompute=recompute,
            ledger=ledger or Ledger(),
        )
        self.parameters = self.model.parameters(stage)
        self.input_gradients: dict[int, torch.Tensor | None] = {}

    def forward(self, microbatch: int) -> torch.Tensor:
        """Return what the stage passes on."""
        batch = Rows().get(setting(shapes=self.shapes), microbatch)
        h_BLD = None if self.stage.is_first else self.random(microbatch)
        return self.stage.forward(
            Inputs(batch, {"mask": None}),
            h_BLD,
            prepare=lambda: Inputs(batch, {"mask": None}),
            step=1,
            microbatch=microbatch,
            is_last_microbatch=microbatch == len(self.shapes) - 1,
        )

    def obey(self, word: str) -> None:
        """Obey one word such as ``F0``."""
        op, microbatch = word[0], int(word[1:])
        gradient = torch.tensor(0.1) if self.stage.is_last else self.random(microbatch + 10)
        match op:
            case "F":
                self.forward(microbatch)
            case "B":
                self.input_gradients[microbatch] = self.stage.backward(gradient, microbatch=microbatch)
            case "I":
                self.input_gradients[microbatch] = self.stage.input_gradient(gradient, microbatch=microbatch)
            case "W":
                self.stage.weight_gradient(microbatch=microbatch)

    def run(self, words: str) -> dict[str, torch.Tensor]:
        """Obey all words; return the gradients of parameters by name, and of inputs by microbatch."""
        for word in words.split():
            self.obey(word)
        assert self.stage.in_flight == 0
        named = {name: p.grad for name, p in self.parameters.items()}
        named |= {f"input {m}": gradient for m, gradient in self.input_gradients.items()}
        return {name: gradient for name, gradient in named.items() if gradient is not None}

    def random(self, seed: int) -> torch.Tensor:
        """Return a hidden state of the shape of microbatch ``seed`` modulo 10."""
        shape = self.shapes[seed % 10]
        generator = torch.Generator().manual_seed(seed)
        return torch.randn(shape.rows, shape.width, self.model.config.hidden_size, generator=generator)


def assert_same_bits(found: dict[str, torch.Tensor], expected: dict[str, torch.Tensor]) -> None:
    assert found.keys() == expected.keys()
    assert [name for name, gradient in expected.items() if not torch.equal(found[name], gradient)] == []


def live_bytes(stage: OneStage, words: str) -> list[int]:
    """Return the bytes alive after each word, besides parameters, their gradients and buffers, there before."""
    there = [buffer for buffer in stage.model.model.buffers() if not buffer.is_meta]
    for parameter in stage.parameters.values():
        parameter.grad = torch.zeros_like(parameter)
        there += [parameter, parameter.grad]
    live = []
    with LiveStorages(there) as storages:
        for word in words.split():
            stage.obey(word)
            stage.input_gradients.clear()
            live.append(storages.live_bytes())
    return live
