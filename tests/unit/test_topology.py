"""Workers and their places."""

import pytest

from coordinator.topology import Coordinates, Topology


def test_topology_of_two_replicas_keeps_each_pipeline_together() -> None:
    topology = Topology(pp=3, dp=2)
    places = [(topology.coordinates(w).dp_rank, topology.coordinates(w).pp_rank) for w in range(topology.num_workers)]
    assert places == [(0, 0), (0, 1), (0, 2), (1, 0), (1, 1), (1, 2)]


def test_topology_finds_the_worker_of_each_place() -> None:
    topology = Topology(pp=3, dp=2)
    assert topology.worker_of(dp_rank=1, pp_rank=1) == 4
    assert topology.coordinates(4) == Coordinates(dp_rank=1, pp_rank=1)


@pytest.mark.parametrize("worker", [-1, 6])
def test_topology_asked_for_a_worker_outside_is_refused(worker: int) -> None:
    with pytest.raises(ValueError, match=rf"worker {worker} is outside \[0, 6\)"):
        Topology(pp=3, dp=2).coordinates(worker)


@pytest.mark.parametrize(
    ("dp_rank", "pp_rank", "name"), [(2, 0, "dp_rank 2"), (0, 3, "pp_rank 3"), (-1, 0, "dp_rank -1")]
)
def test_topology_asked_for_a_place_outside_is_refused(dp_rank: int, pp_rank: int, name: str) -> None:
    with pytest.raises(ValueError, match=name):
        Topology(pp=3, dp=2).worker_of(dp_rank=dp_rank, pp_rank=pp_rank)


def test_topology_without_workers_is_refused() -> None:
    with pytest.raises(ValueError, match="pp is 0, need at least 1"):
        Topology(pp=0, dp=1)


def test_topology_with_tensor_parallelism_is_refused() -> None:
    with pytest.raises(ValueError, match="tp is 2, which is not built"):
        Topology(pp=1, dp=1, tp=2)
