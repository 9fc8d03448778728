"""What parts cost by their sizes, against numbers by hand: 50 operations and 10 bytes a nanosecond."""

from collections.abc import Mapping

import pytest

from coordinator.costs import from_document, to_document
from coordinator.estimate import estimate
from coordinator.parts import MicrobatchSize, ModelPart, ModelParts, SharedParameters
from coordinator.spec import JobSpec, parse_spec

PARTS = ModelParts(
    embeddings=ModelPart(parameters=1000),
    layer=ModelPart(parameters=500, forward_operations=MicrobatchSize(row_linear=100, row_quadratic=2)),
    head=ModelPart(parameters=40, forward_operations=MicrobatchSize(fixed=100, row=250)),
    stage=ModelPart(),
)
"""Of a row of 10 tokens a layer does 1,200 operations in a forward, the head 250 and 100 for all rows."""
NANOSECOND = 1e-9


def spec(**sections: Mapping[str, object]) -> JobSpec:
    document = {"name": "a", "model": {"config": {"model_type": "bert"}}, "data": {"task": "demo", "max_length": 10}}
    return parse_spec({**document, **sections})


def test_estimate_of_parts_is_the_one_by_hand() -> None:
    costs = estimate(spec(), PARTS, num_layers=3, hidden_size=16)
    assert costs.rows == (1, 2)
    (layer,) = costs.layers
    assert layer.forward_seconds == pytest.approx((24 * NANOSECOND, 48 * NANOSECOND))
    assert layer.backward_seconds == pytest.approx((48 * NANOSECOND, 96 * NANOSECOND))
    assert layer.input_gradient_seconds == layer.weight_gradient_seconds == layer.forward_seconds
    assert costs.head.forward_seconds == pytest.approx((7 * NANOSECOND, 12 * NANOSECOND))
    assert costs.embeddings.forward_seconds == costs.embeddings.backward_seconds == (0, 0)
    # AdamW reads weight, gradient and two moments and writes three of them: 28 bytes an element
    assert costs.embeddings.optimizer_seconds == pytest.approx(2800 * NANOSECOND)
    assert layer.optimizer_seconds == pytest.approx(1400 * NANOSECOND)
    assert costs.head.optimizer_seconds == pytest.approx(112 * NANOSECOND)
    assert [part.parameter_bytes for part in (costs.embeddings, layer, costs.head)] == [4000, 2000, 160]
    assert costs.transfer.bytes_per_row == 10 * 16 * 4


def test_estimate_of_sgd_has_no_moments_to_read() -> None:
    costs = estimate(spec(train={"optimizer": "sgd"}), PARTS, num_layers=3, hidden_size=16)
    assert costs.embeddings.optimizer_seconds == pytest.approx(1200 * NANOSECOND)


def test_estimate_updates_a_tied_table_at_both_ends_and_what_layers_share_at_none() -> None:
    tied = SharedParameters(parameters=300, tensors=1, blocks=(0, 4))
    of_layers = SharedParameters(parameters=70, tensors=1, blocks=(1, 2, 3))
    of_all = SharedParameters(parameters=7, tensors=1, blocks=(0, 1, 2, 3))
    parts = ModelParts(
        embeddings=PARTS.embeddings,
        layer=PARTS.layer,
        head=PARTS.head,
        stage=PARTS.stage,
        shared=(tied, of_layers, of_all),
    )
    costs = estimate(spec(), parts, num_layers=3, hidden_size=16)
    assert costs.embeddings.optimizer_seconds == pytest.approx((1000 + 300) * 2.8 * NANOSECOND)
    assert costs.head.optimizer_seconds == pytest.approx((40 + 300) * 2.8 * NANOSECOND)
    assert costs.layers[0].optimizer_seconds == pytest.approx(500 * 2.8 * NANOSECOND)


def test_estimate_of_frozen_layers_is_that_of_their_forward() -> None:
    costs = estimate(spec(train={"frozen_layers": 2}), PARTS, num_layers=3, hidden_size=16)
    frozen, also, trained = costs.layers
    assert frozen == also
    assert frozen.forward_seconds == trained.forward_seconds
    assert (frozen.backward_seconds, frozen.optimizer_seconds, frozen.parameter_bytes) == ((0, 0), 0, 0)
    assert trained.backward_seconds == pytest.approx((48 * NANOSECOND, 96 * NANOSECOND))
    assert costs.embeddings.optimizer_seconds == 0
    assert costs.head.optimizer_seconds == pytest.approx(112 * NANOSECOND)


def test_estimate_with_frozen_embeddings_does_not_update_a_head_that_is_tied_to_them() -> None:
    tied = SharedParameters(parameters=300, tensors=1, blocks=(0, 4))
    parts = ModelParts(
        embeddings=PARTS.embeddings, layer=PARTS.layer, head=PARTS.head, stage=PARTS.stage, shared=(tied,)
    )
    costs = estimate(spec(train={"frozen_layers": 0}), parts, num_layers=3, hidden_size=16)
    assert len(costs.layers) == 1
    assert costs.embeddings.optimizer_seconds == 0
    assert costs.head.optimizer_seconds == pytest.approx(112 * NANOSECOND)


def test_estimate_of_half_precision_sends_half_the_bytes() -> None:
    costs = estimate(spec(train={"precision": "bf16"}), PARTS, num_layers=3, hidden_size=16)
    assert (costs.transfer.bytes_per_row, costs.precision) == (10 * 16 * 2, "bf16")


def test_estimate_can_be_written_and_read_as_a_file_of_costs() -> None:
    costs = estimate(spec(), PARTS, num_layers=3, hidden_size=16)
    assert from_document(to_document(costs)) == costs
