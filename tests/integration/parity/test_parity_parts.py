"""What the parts of a model hold and cost, against closed forms and whole models of the library."""

import functools
from typing import Any

import pytest
import torch
from transformers import AutoConfig, AutoModelForSequenceClassification

from coordinator.parts import MicrobatchSize, ModelParts
from stage_worker.engine.precision import ComputeType
from stage_worker.facts import needs_of, parts_of
from stage_worker.models.objective import Objective
from tests.unit.tiny_models import VALUES

pytestmark = pytest.mark.timeout(60)

D, HEADS, INNER, WORDS = 16, 2, 32, 45
UNEVEN = (("num_hidden_layers", 3), ("num_hidden_groups", 2))
ONE_LAYER = (("num_hidden_layers", 1),)


@functools.cache
def parts(model_type: str, changes: tuple[tuple[str, int], ...] = (), *, num_labels: int = 3) -> ModelParts:
    section = {"config": {"model_type": model_type, **VALUES[model_type], **dict(changes)}, "attention": "sdpa"}
    needs = needs_of(num_labels, WORDS, 0)
    return ModelParts.of(parts_of(section, needs, Objective.CLASSIFICATION, compute=ComputeType.FP32))


def test_parts_of_an_encoder_count_two_operations_a_multiply_add() -> None:
    found = parts("bert")
    # Four products of D x D and two of D x INNER a position; scores and sums over positions are 2 D each a pair.
    assert found.layer.forward_operations == MicrobatchSize(
        row_linear=2 * (4 * D * D + 2 * D * INNER), row_quadratic=4 * D
    )
    assert found.head.forward_operations == MicrobatchSize(row=2 * (D * D + 3 * D))
    assert found.embeddings.forward_operations == found.stage.forward_operations == MicrobatchSize()


def test_parts_of_an_encoder_keep_what_its_backward_reads() -> None:
    """In fp32, of each position: input, q, k, v, what they give, a sum, its norm, another sum; INNER before and after.

    And mean and deviation of both norms, of each head the log of a sum. The mask of a pair is a number.
    """
    layer = parts("bert").layer
    assert layer.activation_bytes == MicrobatchSize(row_linear=4 * (8 * D + 2 * INNER + 4 + HEADS), row_quadratic=4)


def test_parts_of_an_encoder_leave_inputs_and_output_gradients_of_products_between_the_halves() -> None:
    """Six products, of which q, k and v have one input."""
    layer = parts("bert").layer
    assert layer.waiting_bytes == MicrobatchSize(row_linear=4 * (3 * D + INNER + 5 * D + INNER))


@pytest.mark.parametrize(
    ("model_type", "changes", "num_labels"),
    [("bert", (), 3), ("albert", UNEVEN, 3), ("llama", ONE_LAYER, 1)],
    ids=["bert", "albert of uneven groups", "llama of one layer that predicts a number"],
)
def test_parts_together_have_the_parameters_of_the_whole_model(
    model_type: str, changes: tuple[tuple[str, int], ...], num_labels: int
) -> None:
    values: dict[str, Any] = {**VALUES[model_type], **dict(changes), "vocab_size": WORDS, "pad_token_id": 0}
    with torch.device("meta"):
        config = AutoConfig.for_model(model_type, **values, num_labels=num_labels)
        whole = list(AutoModelForSequenceClassification.from_config(config).parameters())
    found = parts(model_type, changes, num_labels=num_labels)
    every = [found.embeddings, found.head, *[found.layer] * config.num_hidden_layers, *found.shared]
    assert sum(part.parameters for part in every) == sum(parameter.numel() for parameter in whole)
    assert sum(part.tensors for part in every) == len(whole)


def test_parts_of_layers_that_share_unevenly_are_told_by_their_blocks() -> None:
    found = parts("albert", UNEVEN)
    assert found.layer.parameters == 0
    assert [shared.blocks for shared in found.shared] == [(1, 2), (3,)]
