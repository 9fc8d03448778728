"""A model of plain modules in which one layer is used by all layers, and the embedding is the head.

B rows, L positions, D hidden, V entries of the vocabulary.
"""

from types import SimpleNamespace
from typing import Any

import torch
import torch.nn.functional as F  # noqa: N812  torch's own name for it
from torch import nn

from benchmarks.local_case import LocalCase, batch_of, layers_of, slices_of
from stage_worker.comm_place import Place
from stage_worker.engine.commands import Phase
from stage_worker.models.family import Block, Family, Inputs
from stage_worker.models.loaded import LoadedModel, StageBlocks
from stage_worker.models.objective import Objective
from stage_worker.models.uses import uses_of
from tests.unit.tiny_bert import CPU

NUM_LAYERS = 6
WORDS, MIX, BIAS, SHIFTS = "words.weight", "mix.weight", "mix.bias", "shifts.{}.bias"


class Shift(nn.Module):
    """Adds a vector of its own: something that no other layer uses."""

    def __init__(self, hidden_size: int) -> None:
        super().__init__()
        self.bias = nn.Parameter(torch.randn(hidden_size))

    def forward(self, h_BLD: torch.Tensor) -> torch.Tensor:
        return h_BLD + self.bias


class SharedModel(nn.Module):
    """Embeds, mixes by one matrix again and again, and reads words off by the embedding's own weights."""

    def __init__(self, *, num_words: int = 50, hidden_size: int = 8) -> None:
        super().__init__()
        with torch.random.fork_rng():
            torch.manual_seed(3)
            self.words = nn.Embedding(num_words, hidden_size)
            self.mix = nn.Linear(hidden_size, hidden_size)
            self.shifts = nn.ModuleList(Shift(hidden_size) for _ in range(NUM_LAYERS))
            self.head = nn.Linear(hidden_size, num_words, bias=False)
        self.head.weight = self.words.weight


def _blocks(config: Any) -> tuple[Block, ...]:
    def embed(model: Any, h_BLD: torch.Tensor | None, inputs: Inputs) -> torch.Tensor:
        return model.words(inputs.batch.input_ids_BL)

    def layer(index: int) -> Block:
        def call(model: Any, h_BLD: torch.Tensor | None, inputs: Inputs) -> torch.Tensor:
            return model.shifts[index](torch.tanh(model.mix(h_BLD)))

        return Block(f"layer {index}", ("mix", f"shifts.{index}"), call)

    head = Block("head", ("head",), lambda model, h_BLD, inputs: model.head(h_BLD))
    return Block("words", ("words",), embed), *(layer(index) for index in range(NUM_LAYERS)), head


FAMILY = Family(
    model_type="shared",
    objective=Objective.MASKED_LM,
    build=lambda config: SharedModel(),
    base_prefix="",
    new_in_a_task=(),
    blocks=_blocks,
    context=lambda config, attention_mask_BL, dtype: {},
    buffers=lambda config: {},
    first_columns=frozenset({"input_ids"}),
    last_columns=frozenset({"labels"}),
)


def load_shared(case: LocalCase, place: Place, *, frozen: frozenset[str] = frozenset()) -> LoadedModel:
    """Return one worker's part; the parameters named ``frozen`` are not trained."""
    plan = case.train_plan()
    model, blocks = FAMILY.build(None), FAMILY.blocks(None)
    uses = uses_of(model, blocks)
    parts = slices_of(plan, place, num_layers=NUM_LAYERS)
    stages = {part.stage: StageBlocks(part, part.blocks(blocks)) for part in parts}
    own = {name for stage in stages.values() for index in stage.blocks for name in uses.by_block[index].values()}
    held = {name: parameter for name, parameter in model.named_parameters() if name in own}
    for name, parameter in held.items():
        parameter.requires_grad_(name not in frozen)
    return LoadedModel(
        config=SimpleNamespace(hidden_size=8),
        family=FAMILY,
        model=model,
        device=CPU,
        layers_by_stage=layers_of(plan, num_layers=NUM_LAYERS),
        stages=stages,
        uses=uses,
        held=held,
    )


def gradients_by_use(case: LocalCase) -> dict[str, list[torch.Tensor]]:
    """Return the gradients of the first step of one replica for every use of each parameter, in layer order.

    By formulas and plain autograd, with a tensor of its own for every use.
    """
    model = SharedModel()

    def copies(parameter: torch.Tensor, count: int) -> list[torch.Tensor]:
        return [parameter.detach().clone().requires_grad_() for _ in range(count)]

    words, mix, bias = (
        copies(model.words.weight, 2),
        copies(model.mix.weight, NUM_LAYERS),
        copies(model.mix.bias, NUM_LAYERS),
    )
    shifts = [copies(shift.bias, 1)[0] for shift in model.shifts]
    (lengths, *_) = (step.lengths for step in case.steps)
    denominator = case.setting(lengths, phase=Phase.TRAIN, step=1, dp_rank=0).denominator
    for rows in case.rows_of(lengths, 0):
        batch = batch_of(case, lengths, rows, phase=Phase.TRAIN, step=1)
        h_BLD = F.embedding(batch.input_ids_BL, words[0])
        for layer in range(NUM_LAYERS):
            h_BLD = torch.tanh(F.linear(h_BLD, mix[layer], bias[layer])) + shifts[layer]
        logits_NV = F.linear(h_BLD, words[1]).flatten(0, 1)
        loss = F.cross_entropy(logits_NV, batch.labels.flatten(), ignore_index=-100, reduction="sum")
        loss.backward(torch.tensor(1.0 / denominator))
    uses = {WORDS: words, MIX: mix, BIAS: bias} | {SHIFTS.format(n): [shift] for n, shift in enumerate(shifts)}
    return {name: [use.grad for use in each] for name, each in uses.items()}
