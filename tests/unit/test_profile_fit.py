"""Costs of parts found again in what stages and workers took."""

from collections.abc import Mapping
from dataclasses import replace

import pytest

from coordinator.costs import CostModel
from coordinator.parts import MicrobatchSize, ModelPart, ModelParts
from coordinator.profile_fit import MeasuredRun, fitted_costs
from coordinator.trace.action_times import ActionTime
from coordinator.trace.measured import MeasuredCosts

# Seconds of embeddings, a layer and the head for each row; halves of a backward are no halves.
TRUE = {"F": (0.2, 1.0, 0.3), "B": (0.1, 2.5, 0.6), "I": (0.0, 1.4, 0.5), "W": (0.05, 0.9, 0.2)}
UPDATES = (4.0, 0.5, 0.1)
PARAMETERS = (400, 50, 10)
PARTS = ModelParts(
    embeddings=ModelPart(parameters=400, forward_operations=MicrobatchSize(row=1.0)),
    layer=ModelPart(parameters=50, forward_operations=MicrobatchSize(row=10.0)),
    head=ModelPart(parameters=10, forward_operations=MicrobatchSize(row=2.0)),
    stage=ModelPart(),
)


def run(
    rows: int,
    *layers: int,
    transfer: float = 0.0,
    dp: int = 1,
    first_backward: float = 0.0,
    beside: float = 0.0,
    true: Mapping[str, tuple[float, float, float]] = TRUE,
) -> MeasuredRun:
    """Return what a run with these stages measures where the model costs what is TRUE."""
    last = len(layers) - 1

    def stage_sum(values: tuple[float, float, float], stage: int) -> float:
        embeddings, layer, head = values
        return layers[stage] * layer + embeddings * (stage == 0) + head * (stage == last)

    def time(values: tuple[float, float, float], stage: int) -> ActionTime:
        embeddings, layer, head = values
        return ActionTime(
            seconds=rows * stage_sum(values, stage) + beside,
            layers=rows * layers[stage] * layer,
            embeddings=rows * embeddings * (stage == 0),
            head=rows * head * (stage == last),
            beside=beside,
        )

    stages = range(len(layers))
    return MeasuredRun(
        rows=rows,
        layers=layers,
        held=tuple((stage,) for stage in stages),
        costs=MeasuredCosts(
            actions={(s, op): time(each, s) for op, each in true.items() for s in stages},
            first_backward=first_backward,
            transfer=transfer,
            action_seconds=0.01,
            optimizer={w: stage_sum(UPDATES, w % len(layers)) for w in range(dp * len(layers))},
            reduce={w: 3e-3 * 4 * stage_sum((400, 50, 10), w % len(layers)) + w for w in range(dp * len(layers))},
            vote=0.02,
            waits=0.005,
            step=1.0,
        ),
        width=16.0,
        message_bytes=1000.0 * rows,
    )


def fitted(*runs: MeasuredRun, dp: int = 1) -> CostModel:
    return fitted_costs(runs, PARTS, dp=dp, device="cpu", optimizer="adamw", precision="fp32")


def tables(costs: CostModel) -> dict[str, list[tuple[float, ...]]]:
    parts = (costs.embeddings, costs.layers[0], costs.head)
    names = {"F": "forward", "B": "backward", "I": "input_gradient", "W": "weight_gradient"}
    return {op: [getattr(part, f"{name}_seconds") for part in parts] for op, name in names.items()}


@pytest.mark.parametrize("layers", [(3, 3), (1, 1, 1), (2, 2, 1), (4,)])
def test_parts_cost_what_they_were_seen_to_take(layers: tuple[int, ...]) -> None:
    costs = fitted(run(4, *layers), run(2, *layers))
    for op, parts in tables(costs).items():
        for part, seconds in enumerate(parts):
            assert seconds == pytest.approx((2 * TRUE[op][part], 4 * TRUE[op][part])), (op, part)
    assert costs.rows == (2, 4)


def test_what_no_part_takes_is_of_every_action() -> None:
    costs = fitted(run(4, 3, 3, beside=0.5))
    assert costs.action_seconds == pytest.approx(0.01 + 0.5)
    assert costs.layers[0].forward_seconds == pytest.approx((4.0,))


def test_stages_that_split_take_longer_forwards_which_count_with_their_halves() -> None:
    slow = TRUE | {"F": (0.2, 1.25, 0.3), "B": (9.0, 9.0, 9.0)}
    plain, split = only(run(4, 3, 3), "F", "B"), run(4, 3, 3, true=slow)
    for runs in ((plain, split), (split, plain)):
        layer = fitted(*runs).layers[0]
        assert layer.forward_seconds == pytest.approx((4 * 1.0,))
        assert layer.backward_seconds == pytest.approx((4 * 2.5,))
        assert layer.input_gradient_seconds == pytest.approx((4 * (1.4 + 0.25),))
        assert layer.weight_gradient_seconds == pytest.approx((4 * 0.9,))
    assert fitted(split).layers[0].forward_seconds == pytest.approx((4 * 1.25,))


def test_stage_that_never_did_an_op_is_worked_out_from_what_it_did() -> None:
    """As the last one of a schedule whose halves are next to each other there, and so one backward."""
    whole = run(4, 2, 2)
    actions = {key: time for key, time in whole.costs.actions.items() if key not in ((1, "I"), (1, "W"), (0, "B"))}
    costs = fitted(replace(whole, costs=replace(whole.costs, actions=actions)))
    assert costs.layers[0].input_gradient_seconds == pytest.approx((4 * 1.4,))
    assert costs.head.backward_seconds == pytest.approx((4 * 0.6,))
    assert costs.head.input_gradient_seconds[0] + costs.head.weight_gradient_seconds[0] == pytest.approx(4 * 0.6)
    assert costs.embeddings.backward_seconds == pytest.approx((4 * 0.05,))  # its I and its W


def test_runs_of_the_same_microbatches_count_alike() -> None:
    slow = {op: (each[0], 3 * each[1], each[2]) for op, each in TRUE.items()}
    costs = fitted(run(4, 2, 2), run(2, 2, 2), run(4, 2, 2, true=slow))
    assert costs.layers[0].forward_seconds == pytest.approx((2 * 1.0, 4 * 2.0))
    assert costs.layers[0].weight_gradient_seconds == pytest.approx((2 * 0.9, 4 * 1.8))
    assert costs.head.forward_seconds == pytest.approx((2 * 0.3, 4 * 0.3))


@pytest.mark.parametrize("sizes", [((3, 3), (2, 4)), ((2, 2, 2), (1, 2, 3)), ((2, 2, 2),)])
def test_updates_of_workers_are_told_apart(sizes: tuple[tuple[int, ...], ...]) -> None:
    costs = fitted(*(run(4, *layers) for layers in sizes))
    updates = [part.optimizer_seconds for part in (costs.embeddings, costs.layers[0], costs.head)]
    assert updates == pytest.approx(UPDATES, abs=2e-2)


def test_updates_that_cannot_be_told_apart_are_shared_out_by_parameters() -> None:
    costs = fitted(run(4, 1, 1))
    updates = [part.optimizer_seconds for part in (costs.embeddings, costs.layers[0], costs.head)]
    assert updates[0] + updates[1] == pytest.approx(4.5, rel=1e-3)
    assert updates[1] + updates[2] == pytest.approx(0.6, rel=1e-3)
    assert updates[1] > 3 * updates[2]


def test_making_the_gradient_of_the_embeddings_is_of_the_first_backward() -> None:
    costs = fitted(run(4, 3, 3, first_backward=0.25), run(2, 3, 3, first_backward=9.0))
    assert costs.first_backward_seconds == 0.25


def test_no_part_costs_less_than_nothing() -> None:
    """Noise can make the worker with the embeddings the quicker one."""
    whole = run(4, 2, 2, 2)
    costs = fitted(replace(whole, costs=replace(whole.costs, optimizer={0: 0.5, 1: 1.0, 2: 1.1})))
    assert costs.embeddings.optimizer_seconds >= 0.0


def test_message_takes_a_latency_and_a_time_for_each_byte() -> None:
    costs = fitted(run(4, 3, 3, transfer=0.1 + 4000 * 2e-5), run(2, 3, 3, transfer=0.1 + 2000 * 2e-5))
    assert costs.transfer.latency_seconds == pytest.approx(0.1)
    assert costs.transfer.seconds_per_byte == pytest.approx(2e-5)
    assert costs.transfer.bytes_per_row == 1000.0
    assert costs.transfer.seconds(6) == pytest.approx(0.1 + 6000 * 2e-5)


@pytest.mark.parametrize(("own", "other"), [(0.05, 0.09), (0.4, 0.1)])
def test_message_costs_are_never_below_nothing(own: float, other: float) -> None:
    costs = fitted(run(4, 3, 3, transfer=own), run(2, 3, 3, transfer=other))
    assert costs.transfer.latency_seconds >= 0
    assert costs.transfer.seconds_per_byte >= 0
    assert costs.transfer.seconds(4) == pytest.approx(own)


def test_sums_over_replicas_cost_what_the_worker_that_waits_least_needs() -> None:
    costs = fitted(run(4, 3, 3, dp=2), dp=2)
    assert costs.reduce_seconds_per_byte == pytest.approx(3e-3)
    assert costs.step_seconds == pytest.approx(0.005)
    assert fitted(run(4, 3, 3)).reduce_seconds_per_byte == 0.0
    assert fitted(run(4, 3, 3)).step_seconds == pytest.approx(0.025)


def only(run: MeasuredRun, *ops: str) -> MeasuredRun:
    actions = {key: seconds for key, seconds in run.costs.actions.items() if key[1] in ops}
    return replace(run, costs=replace(run.costs, actions=actions))


def test_halves_of_a_backward_that_was_never_split_follow_its_matrix_products() -> None:
    """Of a linear layer one product is the input's and one the weights'; attention has no weights."""
    half = {"linear": MicrobatchSize(row_linear=10.0), "attention": MicrobatchSize(row_linear=10.0, row_quadratic=1.0)}
    for kind, share in (("linear", 0.5), ("attention", 160 / (2 * 160 + 2 * 256))):
        parts = replace(PARTS, layer=replace(PARTS.layer, forward_operations=half[kind]))
        costs = fitted_costs(
            [only(run(4, 2, 2, 2), "F", "B")], parts, dp=1, device="cpu", optimizer="adamw", precision="fp32"
        )
        layer = costs.layers[0]
        assert layer.weight_gradient_seconds[0] == pytest.approx(share * layer.backward_seconds[0])
        assert layer.input_gradient_seconds[0] == pytest.approx((1 - share) * layer.backward_seconds[0])
        assert costs.embeddings.weight_gradient_seconds == (0.0,)


def test_whole_backward_that_was_never_done_is_its_halves() -> None:
    layer = fitted(only(run(4, 2, 2, 2), "F", "I", "W")).layers[0]
    assert layer.backward_seconds[0] == pytest.approx(4 * (1.4 + 0.9), rel=1e-2)


def test_worker_with_two_stages_updates_both() -> None:
    """As in a V: worker 0 has the embeddings and the head."""
    whole = run(4, 2, 2, 2, 2)
    first = UPDATES[0] + 4 * UPDATES[1] + UPDATES[2]
    costs = replace(whole.costs, optimizer={0: first, 1: 4 * UPDATES[1]})
    layer = fitted(replace(whole, held=((0, 3), (1, 2)), costs=costs)).layers[0]
    assert layer.optimizer_seconds == pytest.approx(UPDATES[1], rel=1e-2)
