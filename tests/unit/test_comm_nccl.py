"""The NCCL adapter against a stand-in for torch.distributed that moves tensors between objects of one process."""

from collections import deque
from dataclasses import dataclass, field
from itertools import pairwise, product
from typing import Any

import pytest
import torch

from stage_worker.comm_message import pack
from stage_worker.comm_nccl import NcclTransport, channels
from stage_worker.comm_place import Place
from stage_worker.engine.commands import Phase
from stage_worker.engine.transport import Message, PeerLostError, TransferError, TransferKind

CPU = torch.device("cpu")
SHAPE = (2, 3, 4)
A, G = TransferKind.ACTIVATION, TransferKind.GRADIENT

LOOPING_2X2, LOOPING_3X2, V_3 = (0, 1, 0, 1), (0, 1, 2, 0, 1, 2), (0, 1, 2, 2, 1, 0)
ONE_WORKER, ZIGZAG = (0, 0, 0), (2, 0, 0, 1, 2, 1)
"""Place in the pipeline of each stage's worker."""


@dataclass
class FakeDist:
    """One worker's ``torch.distributed``; ``calls`` is what NCCL would see, in order."""

    groups: list[tuple[int, ...]] = field(default_factory=list)
    eager: list[bool] = field(default_factory=list)
    calls: list[tuple[Any, ...]] = field(default_factory=list)
    arriving: list[torch.Tensor] = field(default_factory=list)
    fails: str | None = None
    wires: dict[int, deque[torch.Tensor]] | None = None
    """What is on its way over each group, where several workers are connected."""

    def new_group(self, ranks: list[int], *, backend: str, device_id: torch.device) -> int:
        """Return the group's number."""
        assert backend == "nccl"
        self.groups.append(tuple(ranks))
        self.eager.append(device_id is not None)
        return len(self.groups) - 1

    def isend(self, tensor: torch.Tensor, rank: int, *, group: int) -> "FakeWork":
        self.calls.append(("send", rank, self.groups[group], group, tensor))
        if self.wires is not None:
            self.wires.setdefault(group, deque()).append(tensor.clone())
        return FakeWork(self.fails)

    def irecv(self, tensor: torch.Tensor, rank: int, *, group: int) -> "FakeWork":
        self.calls.append(("recv", rank, self.groups[group], group, tensor))
        if self.arriving:
            tensor.copy_(self.arriving.pop(0))
        if self.wires is not None:
            tensor.copy_(self.wires[group].popleft())
        return FakeWork(self.fails)

    def all_gather(self, parts: list[torch.Tensor], own: torch.Tensor, *, group: int) -> None:
        for rank, part in enumerate(parts):
            part.copy_(own * 10**rank)
        self.calls.append(("gather", self.groups[group]))

    def all_reduce(self, tensor: torch.Tensor, *, group: int) -> None:
        if self.fails:
            raise RuntimeError(self.fails)
        tensor.mul_(len(self.groups[group]))
        self.calls.append(("reduce", self.groups[group]))

    def destroy_process_group(self) -> None:
        self.calls.append(("destroy",))


@dataclass
class FakeWork:
    fails: str | None

    def wait(self) -> bool:
        if self.fails:
            raise RuntimeError(self.fails)
        return True


def message(kind: TransferKind = TransferKind.ACTIVATION, *, microbatch: int = 0, boundary: int = 0) -> Message:
    return Message(
        phase=Phase.TRAIN,
        step=1,
        kind=kind,
        boundary=boundary,
        microbatch=microbatch,
        shape=SHAPE,
        dtype=torch.float32,
    )


def transport(
    worker: int = 1, *, pp: int = 3, dp: int = 1, pp_rank_by_stage: tuple[int, ...] | None = None, **fake: Any
) -> tuple[NcclTransport, FakeDist]:
    """Return one worker's transport; without ``pp_rank_by_stage`` each worker holds one stage."""
    dist = FakeDist(**fake)
    place = Place(worker=worker, pp=pp, dp=dp)
    ranks = pp_rank_by_stage if pp_rank_by_stage is not None else tuple(range(pp))
    return NcclTransport(dist, place=place, pp_rank_by_stage=ranks, device=CPU), dist


def test_channels_of_one_stage_a_worker_are_one_for_each_direction() -> None:
    assert channels((0, 1, 2), dp=1) == ((0, 1, A), (1, 0, G), (1, 2, A), (2, 1, G))
    assert channels((0, 1), dp=2) == ((0, 1, A), (1, 0, G), (2, 3, A), (3, 2, G))
    assert channels((0,), dp=4) == ()


@pytest.mark.parametrize(
    ("pp_rank_by_stage", "expected"),
    [
        # Looping: the way from the last worker to the first one as well; boundaries 0 and 2 share theirs.
        (LOOPING_2X2, {(0, 1, A), (1, 0, G), (1, 0, A), (0, 1, G)}),
        (LOOPING_3X2, {(0, 1, A), (1, 0, G), (1, 2, A), (2, 1, G), (2, 0, A), (0, 2, G)}),
        # A V: only neighbours, but both kinds both ways; nothing within worker 2.
        (V_3, {(u, v, kind) for u, v in ((0, 1), (1, 0), (1, 2), (2, 1)) for kind in (A, G)}),
        (ZIGZAG, {(2, 0, A), (0, 2, G), (0, 1, A), (1, 0, G), (1, 2, A), (2, 1, G), (2, 1, A), (1, 2, G)}),
        (ONE_WORKER, set()),
    ],
    ids=["looping_2x2", "looping_3x2", "v_3", "zigzag", "one_worker"],
)
def test_channels_are_those_of_the_placement_once_each(
    pp_rank_by_stage: tuple[int, ...], expected: set[tuple[int, int, TransferKind]]
) -> None:
    found = channels(pp_rank_by_stage, dp=1)
    assert len(found) == len(expected)
    assert set(found) == expected
    pp = max(pp_rank_by_stage) + 1
    second = {(source + pp, target + pp, kind) for source, target, kind in expected}
    assert set(channels(pp_rank_by_stage, dp=2)) == expected | second


PLACED = [
    (1, 1, (0,)),
    (4, 1, (0, 1, 2, 3)),
    (2, 2, (0, 1)),
    (1, 3, (0,)),
    (2, 2, LOOPING_2X2),
    (3, 1, LOOPING_3X2),
    (3, 1, V_3),
    (3, 2, ZIGZAG),
]


@pytest.mark.parametrize(("pp", "dp", "pp_rank_by_stage"), PLACED)
def test_all_workers_create_all_groups_eagerly_in_one_order(
    pp: int, dp: int, pp_rank_by_stage: tuple[int, ...]
) -> None:
    dists = [transport(worker, pp=pp, dp=dp, pp_rank_by_stage=pp_rank_by_stage)[1] for worker in range(pp * dp)]
    assert len({tuple(dist.groups) for dist in dists}) == 1
    assert all(all(dist.eager) for dist in dists)


@pytest.mark.parametrize("pp_rank_by_stage", [LOOPING_2X2, LOOPING_3X2, V_3, ZIGZAG])
def test_every_transfer_of_a_placement_arrives_as_what_it_is(pp_rank_by_stage: tuple[int, ...]) -> None:
    pp = max(pp_rank_by_stage) + 1
    wires: dict[int, deque[torch.Tensor]] = {}
    workers = [transport(w, pp=pp, pp_rank_by_stage=pp_rank_by_stage, wires=wires)[0] for w in range(pp)]
    transfers = []
    for (boundary, (below, above)), microbatch in product(enumerate(pairwise(pp_rank_by_stage)), range(3)):
        if below != above:
            transfers.append((below, above, message(A, boundary=boundary, microbatch=microbatch)))
            transfers.append((above, below, message(G, boundary=boundary, microbatch=microbatch)))
    for number, (source, target, what) in enumerate(transfers):
        workers[source].send(torch.full(SHAPE, float(number)), what, to_worker=target)
    for number, (source, target, what) in enumerate(transfers):
        arrived = workers[target].receive(what, from_worker=source).wait()
        assert torch.equal(arrived, torch.full(SHAPE, float(number)))
    for worker in workers:
        worker.flush()  # looks at every trailer
    assert all(not wire for wire in wires.values())


def test_each_direction_and_kind_has_its_own_communicator() -> None:
    middle, dist = transport(1)
    middle.send(torch.zeros(SHAPE), message(boundary=1), to_worker=2)
    middle.send(torch.zeros(SHAPE), message(TransferKind.GRADIENT), to_worker=0)
    middle.receive(message(), from_worker=0)
    middle.receive(message(TransferKind.GRADIENT, boundary=1), from_worker=2)
    used = [(call, rank, ranks) for call, rank, ranks, _, _ in dist.calls]
    assert used == [("send", 2, (1, 2)), ("send", 0, (1, 0)), ("recv", 0, (0, 1)), ("recv", 2, (2, 1))]
    assert len({group for *_, group, _ in dist.calls}) == 4


def test_sent_bytes_are_the_packed_message() -> None:
    middle, dist = transport(1)
    tensor = torch.randn(SHAPE)
    middle.send(tensor, message(boundary=1), to_worker=2)
    assert torch.equal(dist.calls[0][-1], pack(tensor, message(boundary=1)))


def test_received_tensor_is_verified_before_the_vote() -> None:
    middle, dist = transport(1)
    dist.arriving = [pack(torch.ones(SHAPE), message()), pack(torch.ones(SHAPE), message(microbatch=9))]
    good, wrong = (middle.receive(message(microbatch=m), from_worker=0) for m in (0, 1))
    assert torch.equal(good.wait(), torch.ones(SHAPE))
    middle.add_over_stages(torch.zeros(2))
    wrong.wait()
    with pytest.raises(TransferError, match=r"microbatch 1.* was announced, but .*microbatch 9"):
        middle.add_over_stages(torch.zeros(2))
    assert [call[0] for call in dist.calls] == ["recv", "recv", "reduce"]


def test_flush_verifies_what_no_vote_has_seen() -> None:
    middle, dist = transport(1)
    dist.arriving = [pack(torch.ones(SHAPE), message(microbatch=9))]
    middle.receive(message(), from_worker=0).wait()
    with pytest.raises(TransferError):
        middle.flush()


def test_sums_use_the_own_replica_and_the_twins_in_rank_order() -> None:
    own, dist = transport(1, pp=2, dp=2)
    assert own.add_over_stages(torch.ones(2, dtype=torch.float64)).tolist() == [2.0, 2.0]
    assert own.add_over_replicas(torch.ones(2)).tolist() == [11.0, 11.0]
    assert dist.calls == [("reduce", (0, 1)), ("gather", (1, 3))]


def test_sums_of_one_are_the_tensor_itself() -> None:
    alone, dist = transport(0, pp=1, dp=1)
    tensor = torch.ones(2)
    assert alone.add_over_stages(tensor) is tensor
    assert alone.add_over_replicas(tensor) is tensor
    assert dist.calls == []


def test_lost_peer_is_named() -> None:
    middle, _ = transport(1, fails="NCCL error: remote process exited or connection closed")
    with pytest.raises(PeerLostError, match="worker 0 closed its connection"):
        middle.receive(message(), from_worker=0).wait()
    middle.send(torch.zeros(SHAPE), message(boundary=1), to_worker=2)
    with pytest.raises(PeerLostError, match="worker 2 closed its connection"):
        middle.flush()
    with pytest.raises(PeerLostError, match="a sum over workers failed"):
        middle.add_over_stages(torch.zeros(1))


def test_transfer_where_no_boundary_leads_is_refused() -> None:
    first, _ = transport(0)
    with pytest.raises(PeerLostError, match="nothing leads from worker 0 to worker 2"):
        first.send(torch.zeros(SHAPE), message(), to_worker=2)
    with pytest.raises(PeerLostError, match="nothing leads from worker 0 to worker 1, so the gradient"):
        first.send(torch.zeros(SHAPE), message(G), to_worker=1)
    looping, _ = transport(0, pp_rank_by_stage=LOOPING_3X2)
    looping.send(torch.zeros(SHAPE), message(G, boundary=2), to_worker=2)


def test_close_leaves_all_groups() -> None:
    own, dist = transport(1)
    own.close()
    assert dist.calls == [("destroy",)]
