"""Costs of a model's parts: the file, numbers of rows that were not measured, and the stages they make."""

import copy
import json
from collections.abc import Mapping
from typing import Any

import pytest

from coordinator.costs import CostsError, at_rows, from_document, stage_costs, to_document
from coordinator.partition import StageSlice, even_partition
from coordinator.schedule.placement import looping, v_shaped


def part(forward: list[float], *, optimizer: float = 0.0, parameters: int = 0) -> dict[str, Any]:
    """Return a part whose backward takes twice its forward, the halves of it three and five quarters."""
    return {
        "forward_seconds": forward,
        "backward_seconds": [2 * each for each in forward],
        "input_gradient_seconds": [0.75 * each for each in forward],
        "weight_gradient_seconds": [1.25 * each for each in forward],
        "optimizer_seconds": optimizer,
        "parameter_bytes": parameters,
    }


DOCUMENT: Mapping[str, Any] = {
    "schema": "takt/v1",
    "kind": "costs",
    "source": "profile",
    "device": "cpu",
    "optimizer": "adamw",
    "precision": "fp32",
    "rows": [2, 6],
    "embeddings": part([1.0, 2.0], optimizer=8.0, parameters=1000),
    "layers": [part([4.0, 12.0], optimizer=1.0, parameters=10)],
    "head": part([0.5, 1.0], optimizer=0.25, parameters=1),
    "action_seconds": 0.125,
    "transfer": {"latency_seconds": 0.5, "seconds_per_byte": 0.25, "bytes_per_row": 2.0},
    "reduce_seconds_per_byte": 0.5,
    "step_seconds": 3.0,
    "first_backward_seconds": 6.0,
}


def changed(path: str, value: object) -> dict[str, Any]:
    """Return the document with the value at a dotted path changed, or taken out where it is ``...``."""
    document = copy.deepcopy(dict(DOCUMENT))
    *parents, last = path.split(".")
    place: Any = document
    for name in parents:
        place = place[int(name)] if isinstance(place, list) else place[name]
    if value is ...:
        del place[last]
    else:
        place[last] = value
    return document


def test_document_is_what_was_read() -> None:
    assert to_document(from_document(json.loads(json.dumps(DOCUMENT)))) == DOCUMENT


@pytest.mark.parametrize(
    ("path", "value", "said"),
    [
        ("schema", "takt/v2", "schema is 'takt/v2', needs 'takt/v1'"),
        ("kind", ..., "kind is None, needs 'costs'"),
        ("source", "guess", "source: is 'guess'; input should be 'profile' or 'estimate'"),
        ("device", ..., "device: is missing"),
        ("colour", "red", "colour: is no key of a file of costs"),
        ("rows", [6, 2], r"rows is \[6, 2\], needs numbers that ascend"),
        ("rows", [2, 2], r"rows is \[2, 2\], needs numbers that ascend"),
        ("rows", [0, 2], "rows.0: is 0; input should be greater than or equal to 1"),
        ("rows", ["2", 6], "rows.0: is '2'; input should be a valid integer"),
        ("rows", [2], "embeddings.forward_seconds has 2 entries, but rows has 1; needs one for each"),
        ("head.weight_gradient_seconds", [1.0], "head.weight_gradient_seconds has 1 entries, but rows has 2"),
        ("layers", [], r"layers: is \[\]; "),
        ("layers.0.forward_seconds", [1.0, -1.0], "layers.0.forward_seconds.1: is -1.0; "),
        ("layers.0.forward_seconds", [1.0, float("nan")], "layers.0.forward_seconds.1: is nan; "),
        ("step_seconds", float("inf"), "step_seconds: is inf; "),
        ("head.parameter_bytes", 1.5, "head.parameter_bytes: is 1.5; "),
        ("transfer.bytes_per_row", True, "transfer.bytes_per_row: is True; "),
    ],
)
def test_document_with_something_wrong_is_refused_by_key(path: str, value: object, said: str) -> None:
    with pytest.raises(CostsError, match=f"^{said}"):
        from_document(changed(path, value))


@pytest.mark.parametrize("document", [None, [], "x", 3])
def test_document_that_is_no_object_is_refused(document: object) -> None:
    with pytest.raises(CostsError, match="is no JSON object"):
        from_document(document)


@pytest.mark.parametrize(
    ("rows", "seconds"),
    [(2, 10), (3, 11), (4, 12), (5, 15), (6, 18), (8, 24), (1, 9), (4.5, 13.5)],
)
def test_at_rows_lies_on_the_line_through_the_measured_numbers_around(rows: float, seconds: float) -> None:
    assert at_rows([10, 12, 18], rows, [2, 4, 6]) == seconds


def test_at_rows_is_never_below_0_and_through_0_of_one_measured_number() -> None:
    assert at_rows([1.0, 5.0], 1, [2, 4]) == 0
    assert at_rows([3.0], 4, [2]) == 6


def test_stage_costs_adds_up_the_parts_of_each_stage_and_an_actions_own_time() -> None:
    costs = from_document(DOCUMENT)
    partition = even_partition(num_layers=5, num_stages=2)
    stages = stage_costs(costs, partition, looping(2), rows=3, dp=1)  # a quarter of the way from 2 to 6
    assert stages.forward == (0.125 + 1.25 + 3 * 6, 0.125 + 2 * 6 + 0.625)
    assert stages.backward == (0.125 + 2 * 19.25, 0.125 + 2 * 12.625)
    assert stages.input_gradient == (0.125 + 0.75 * 19.25, 0.125 + 0.75 * 12.625)
    assert stages.weight_gradient == (0.125 + 1.25 * 19.25, 0.125 + 1.25 * 12.625)
    assert stages.transfer == (0.5 + 0.25 * 2 * 3,)
    assert stages.optimizer == (8 + 3, 2 + 0.25)
    assert stages.reduce == (0, 0)
    assert stages.step_end == 3


def test_stage_costs_of_replicas_add_up_the_gradients_of_all_that_a_worker_holds() -> None:
    partition = even_partition(num_layers=4, num_stages=4)
    stages = stage_costs(from_document(DOCUMENT), partition, v_shaped(2), rows=2, dp=3)
    # Worker 0 holds the first and the last stage.
    assert stages.reduce == (0.5 * (1000 + 10 + 10 + 1), 0.5 * 20)
    assert stages.optimizer == (8 + 1 + 1 + 0.25, 2)


def test_stage_costs_of_layers_that_differ_are_those_of_each_stages_own() -> None:
    layers = [part([each, 3 * each]) for each in (1.0, 10.0, 100.0)]
    partition = (StageSlice(stage=0, first_layer=0, num_layers=1), StageSlice(stage=1, first_layer=1, num_layers=2))
    stages = stage_costs(from_document(changed("layers", layers)), partition, looping(2), rows=2, dp=1)
    assert stages.forward == (0.125 + 1 + 1, 0.125 + 110 + 0.5)


def test_stage_costs_of_another_number_of_layers_are_refused() -> None:
    costs = from_document(changed("layers", [part([1.0, 2.0])] * 2))
    with pytest.raises(CostsError, match="layers has 2 entries, but the model has 3 layers"):
        stage_costs(costs, even_partition(num_layers=3, num_stages=1), looping(1), rows=2, dp=1)


def test_stage_costs_that_come_out_at_nothing_still_have_a_length() -> None:
    document = {**changed("layers", [part([0.0, 0.0])]), "action_seconds": 0.0}
    stages = stage_costs(from_document(document), even_partition(num_layers=3, num_stages=3), looping(3), rows=2, dp=1)
    assert 0 < stages.forward[1] <= 1e-9
