"""The way of a shared parameter's sum over the workers: its order, and that both ends of every pair agree on it."""

from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial, reduce
from itertools import groupby

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import nn

from stage_worker.comm_place import Place
from stage_worker.engine.shared import Hop, Route, SharedSums, routes_of
from stage_worker.engine.transport import Message
from tests.unit.fake_transport import FakeTransport
from tests.unit.joined_transport import JoinedTransport, Wire, take_turns
from tests.unit.joined_workers import tiny_case
from tests.unit.shared_model import BIAS, MIX, NUM_LAYERS, WORDS, load_shared


@dataclass
class StubWeights:
    """Masters of two elements, and gradients by block."""

    by_name: Mapping[str, Mapping[int, torch.Tensor]]
    frozen: frozenset[str] = frozenset()
    masters: dict[str, nn.Parameter] = field(init=False)

    def __post_init__(self) -> None:
        self.masters = {name: nn.Parameter(torch.zeros(2), name not in self.frozen) for name in self.by_name}

    def take(self, name: str) -> dict[int, torch.Tensor]:
        return {block: gradient.clone() for block, gradient in self.by_name[name].items()}


Use = tuple[int, torch.Tensor | None]
"""Worker, and the gradient that it has of this use; None where its backward made none."""


def route_of(name: str, workers: Sequence[int]) -> Route:
    """Return the route of a parameter whose n-th use is by block n, on ``workers[n]``."""
    turns = groupby(range(len(workers)), key=workers.__getitem__)
    return Route(name, tuple(Hop(worker, tuple(blocks)) for worker, blocks in turns))


def totals_of(
    parameters: Mapping[str, Sequence[Use]],
) -> tuple[dict[str, dict[int, torch.Tensor]], list[JoinedTransport]]:
    """Add up on all workers at once; return the totals by name and holder, and the transports."""
    routes = [route_of(name, [worker for worker, _ in uses]) for name, uses in parameters.items()]
    num_workers = 1 + max(worker for uses in parameters.values() for worker, _ in uses)
    wire, found = Wire(), defaultdict(dict)
    transports = [JoinedTransport(wire, Place(worker=worker, pp=num_workers, dp=1)) for worker in range(num_workers)]

    def add(worker: int) -> None:
        held = {
            name: {
                block: gradient
                for block, (holder, gradient) in enumerate(uses)
                if holder == worker and gradient is not None
            }
            for name, uses in parameters.items()
            if any(holder == worker for holder, _ in uses)
        }
        sums = SharedSums(StubWeights(held), routes, transports[worker], worker=worker)  # type: ignore[arg-type]
        for name, total in sums.add(step=1).items():
            found[name][worker] = total

    for error in take_turns(wire, [partial(add, worker) for worker in range(num_workers)]):
        if error is not None:
            raise error
    return found, transports


def parts(*values: float) -> list[torch.Tensor]:
    return [torch.tensor([value, -value]) for value in values]


@pytest.mark.parametrize("workers", [[0, 0, 0, 0], [0, 0, 1, 1], [0, 1, 2, 3], [0, 1, 1, 0], [1, 0, 1, 0]], ids=str)
def test_sum_is_in_layer_order_wherever_the_layers_are(workers: list[int]) -> None:
    """2**24 + 1 is 2**24 in fp32: one after the other the ones are lost, in pairs 2 of them would count."""
    gradients = parts(2.0**24, 1.0, 1.0, 1.0)
    totals, _ = totals_of({"w": list(zip(workers, gradients, strict=True))})
    assert {worker: total.tolist() for worker, total in totals["w"].items()} == {
        worker: [2.0**24, -(2.0**24)] for worker in set(workers)
    }
    in_pairs = (gradients[0] + gradients[1]) + (gradients[2] + gradients[3])
    assert in_pairs.tolist() == [2.0**24 + 2, -(2.0**24) - 2]


def test_holder_without_gradients_passes_the_sum_on_and_gets_it() -> None:
    one, four = parts(1.0, 4.0)
    totals, _ = totals_of({"w": [(0, None), (1, one), (2, None), (3, four), (4, None)], "v": [(0, None), (1, None)]})
    assert {worker: total.tolist() for worker, total in totals["w"].items()} == {key: [5.0, -5.0] for key in range(5)}
    assert {worker: total.tolist() for worker, total in totals["v"].items()} == {key: [0.0, 0.0] for key in range(2)}


def test_frozen_parameter_is_no_message() -> None:
    transport = FakeTransport(arriving=torch.ones(2))
    weights = StubWeights({"w": {0: torch.ones(2)}, "v": {0: torch.ones(2)}}, frozen=frozenset({"w"}))
    routes = [route_of("w", [0, 1]), route_of("v", [0, 1])]
    sums = SharedSums(weights, routes, transport, worker=0)  # type: ignore[arg-type]
    assert sums.add(step=1).keys() == {"v"}
    assert [(message.microbatch, to) for _, message, to in transport.sent] == [(1, 1)]
    assert [(message.microbatch, sender) for message, sender in transport.received] == [(1, 1)]


def test_routes_follow_the_uses_in_the_whole_model_and_are_the_same_on_every_worker() -> None:
    case = tiny_case(pp=3, objective="masked_lm")
    found = [
        routes_of(load_shared(case, Place(worker=worker, pp=3, dp=1)), worker_by_stage=(3, 4, 5)) for worker in range(3)
    ]
    assert found[0] == found[1] == found[2]
    layers = tuple(Hop(3 + stage, (1 + 2 * stage, 2 + 2 * stage)) for stage in range(3))
    assert found[0] == (
        Route(WORDS, (Hop(3, (0,)), Hop(5, (NUM_LAYERS + 1,)))),
        Route(MIX, layers),
        Route(BIAS, layers),
    )
    assert [route.pairs for route in found[0]] == [((3, 5), (5, 3)), *[((3, 4), (4, 5), (5, 3), (5, 4))] * 2]


def test_route_that_returns_to_a_worker_goes_there_again() -> None:
    case = tiny_case(pp=2, num_chunks=2, schedule="zbv", objective="masked_lm")
    model = load_shared(case, Place(worker=0, pp=2, dp=1))
    words, mix, _ = routes_of(model, worker_by_stage=(0, 1, 1, 0))
    assert words == Route(WORDS, (Hop(0, (0, NUM_LAYERS + 1)),))
    assert words.pairs == ()
    assert [hop.worker for hop in mix.hops] == [0, 1, 0]
    assert mix.pairs == ((0, 1), (1, 0), (0, 1))


FLOATS = st.floats(-100, 100, width=32).map(lambda value: torch.tensor([value, value / 3]))
USES = st.lists(st.tuples(st.integers(0, 4), st.none() | FLOATS), min_size=2, max_size=8)


def calls_by_pair(transports: Sequence[JoinedTransport]) -> tuple[dict[tuple[int, int], list[Message]], ...]:
    """Return what each ordered pair of workers sends and receives, in the order of the calls at either end."""
    sends, receives = defaultdict(list), defaultdict(list)
    for transport in transports:
        for message, receiver, _ in transport.sent:
            sends[transport.place.worker, receiver].append(message)
        for message, sender in transport.received:
            receives[sender, transport.place.worker].append(message)
    return sends, receives


@settings(max_examples=150, deadline=None)
@given(st.dictionaries(st.sampled_from("abcdef"), USES, min_size=1))
def test_any_routes_end_agree_in_order_at_both_ends_and_give_the_sum_in_layer_order(
    parameters: dict[str, list[Use]],
) -> None:
    """Equal orders and no deadlock in memory mean none on channels that complete in order either."""
    totals, transports = totals_of(parameters)
    sends, receives = calls_by_pair(transports)
    assert sends == receives
    crossed = {pair for name, uses in parameters.items() for pair in route_of(name, [w for w, _ in uses]).pairs}
    assert set(sends) == crossed
    for name, uses in parameters.items():
        expected = reduce(torch.add, [gradient for _, gradient in uses if gradient is not None], torch.zeros(2))
        assert totals[name].keys() == {worker for worker, _ in uses}
        for total in totals[name].values():
            assert torch.equal(total, expected)
