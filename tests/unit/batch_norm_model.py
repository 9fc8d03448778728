"""A model of next to no size whose layers keep running statistics, and the family that describes it.

B rows, L positions, D hidden.
"""

from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from unittest.mock import patch

import torch
from torch import nn

from stage_worker.models.family import Block, BlockCall, Family
from stage_worker.models.loaded import LoadedModel
from stage_worker.models.loading import load_model
from stage_worker.models.objective import Objective
from tests.unit.tiny_bert import CPU, slice_of

HIDDEN = 8
NUM_LAYERS = 2
NUM_AXES = {nn.BatchNorm1d: 0, nn.BatchNorm2d: 1, nn.BatchNorm3d: 2}
"""Axes that a layer's input has beside rows, channels and positions."""
MakeNorm = Callable[[], nn.Module]


def norm(kind: type[nn.Module] = nn.BatchNorm1d, **changes: object) -> MakeNorm:
    """Return what makes a layer of ``kind`` that fits the model."""
    return lambda: kind(HIDDEN >> NUM_AXES.get(kind, 0), **changes)


class Layer(nn.Module):
    """Normalises, mixes and adds."""

    def __init__(self, make_norm: MakeNorm) -> None:
        super().__init__()
        self.norm = make_norm()
        self.dense = nn.Linear(HIDDEN, HIDDEN)

    def forward(self, h_BLD: torch.Tensor) -> torch.Tensor:
        h_BDL = h_BLD.transpose(1, 2)
        num_axes = NUM_AXES.get(type(self.norm), 0)
        wide = h_BDL.reshape(len(h_BDL), HIDDEN >> num_axes, *[2] * num_axes, -1)
        normal_BLD = self.norm(wide).reshape(h_BDL.shape).transpose(1, 2)
        return h_BLD + self.dense(normal_BLD).tanh()


class Tower(nn.Module):
    """Embeddings, layers and a head over the mean of a row's positions."""

    def __init__(self, config: SimpleNamespace) -> None:
        super().__init__()
        self.config = config
        self.embeddings = nn.Embedding(45, HIDDEN)
        self.layers = nn.ModuleList(Layer(config.norm) for _ in range(NUM_LAYERS))
        self.head = nn.Linear(HIDDEN, 2)

    def forward(self, ids_BL: torch.Tensor) -> torch.Tensor:
        h_BLD = self.embeddings(ids_BL)
        for layer in self.layers:
            h_BLD = layer(h_BLD)
        return self.head(h_BLD.mean(1))

    def _init_weights(self, module: nn.Module) -> None:
        for parameter in module.parameters(recurse=False):
            nn.init.normal_(parameter, mean=0.1, std=0.5)


def _layer(index: int) -> BlockCall:
    return lambda model, h_BLD, inputs: model.layers[index](h_BLD)


BLOCKS = (
    Block("embeddings", ("embeddings",), lambda model, h_BLD, inputs: model.embeddings(inputs.batch.input_ids_BL)),
    *(Block(f"layers.{index}", (f"layers.{index}",), _layer(index)) for index in range(NUM_LAYERS)),
    Block("head", ("head",), lambda model, h_BLD, inputs: model.head(h_BLD.mean(1))),
)


def load(
    make_norm: MakeNorm | None = None,
    *,
    stages: tuple[int, ...] = (0,),
    pp: int = 1,
    folder: Path | None = None,
    new_in_a_task: tuple[str, ...] = ("head",),
    blocks: tuple[Block, ...] = BLOCKS,
) -> LoadedModel:
    """Return ``stages`` of ``pp`` equal ones; the layers are ``nn.BatchNorm1d`` unless told otherwise."""
    family = Family(
        model_type="tower",
        objective=Objective.CLASSIFICATION,
        build=Tower,
        base_prefix="tower",
        new_in_a_task=new_in_a_task,
        blocks=lambda config: blocks,
        context=lambda config, attention_mask_BL, dtype: {},
        buffers=lambda config: {},
        first_columns=frozenset({"input_ids"}),
        last_columns=frozenset({"labels"}),
    )
    config = SimpleNamespace(
        model_type="tower", hidden_size=HIDDEN, _attn_implementation="eager", norm=make_norm or norm()
    )
    with patch("stage_worker.models.skeleton.family_of", return_value=family):
        return load_model(
            config,
            slices=[slice_of(stage, pp=pp, num_layers=NUM_LAYERS) for stage in stages],
            layers_by_stage=(NUM_LAYERS // pp,) * pp,
            folder=folder,
            seed=0,
            device=CPU,
        )
