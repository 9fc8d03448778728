"""Transport over NCCL, between GPUs."""

import socket
import time
from collections.abc import Sequence
from datetime import timedelta
from itertools import pairwise
from typing import TYPE_CHECKING, Any

import torch

from stage_worker.comm_message import buffer_for, describe, pack, trailer_of, unpack, verify
from stage_worker.comm_place import Place
from stage_worker.comm_sends import Work, lost
from stage_worker.comm_store import RendezvousError, Store
from stage_worker.engine.transport import Departure, Message, PeerLostError, PendingTensor, TransferKind

if TYPE_CHECKING:  # torch.distributed exports it without telling type checkers
    from torch._C._distributed_c10d import TCPStore
else:
    from torch.distributed import TCPStore

# Note [One communicator a direction]: NCCL runs the calls of a communicator in the order they
# are issued and has no tags. Activations and gradients between two workers may be issued in
# another order at either end, so each ordered pair and kind has a communicator of its own.
# Several boundaries may share one (with two workers of two chunks, boundaries 0 and 2 do): a plan
# is checked to issue what crosses one ordered pair and kind in the same order at both ends.
# All workers create all communicators, in one order; created on first use, two of them could
# wait for each other.

Channel = tuple[int, int, TransferKind]
"""From worker, to worker, kind."""

_TCP_STORE = "tcp_store"


def channels(
    pp_rank_by_stage: Sequence[int], *, dp: int, shared_pairs: Sequence[tuple[int, int]] = ()
) -> tuple[Channel, ...]:
    """Return the channels of all replicas in the order every worker creates them.

    There is one for each ordered pair of workers and kind that any boundary or shared
    parameter uses, and none where neighbouring stages are on one worker.

    Args:
        pp_rank_by_stage: place in the pipeline of each stage's worker, stage 0 first.
        dp: replicas.
        shared_pairs: places (from, to) between which sums of shared parameters go.
    """
    pp = max(pp_rank_by_stage) + 1
    found: dict[Channel, None] = {}  # a set would not keep the order
    for first in range(0, dp * pp, pp):
        for below, above in pairwise(pp_rank_by_stage):
            if below != above:
                found[first + below, first + above, TransferKind.ACTIVATION] = None
                found[first + above, first + below, TransferKind.GRADIENT] = None
        for source, target in shared_pairs:
            found[first + source, first + target, TransferKind.SHARED_GRADIENT] = None
    return tuple(found)


def join_nccl(
    store: Store,
    *,
    host: str,
    place: Place,
    pp_rank_by_stage: Sequence[int],
    shared_pairs: Sequence[tuple[int, int]],
    device: torch.device,
    limit: timedelta,
) -> "NcclTransport":
    """Connect to all other workers; blocks until all are here.

    Args:
        store: of this attempt alone.
        host: address of this machine that the others reach.
        place: this worker's.
        pp_rank_by_stage: place in the pipeline of each stage's worker, stage 0 first.
        shared_pairs: see ``channels``.
        device: where all tensors are.
        limit: of every wait.

    Raises:
        RendezvousError: not all came in time, or NCCL cannot be used.
    """
    import torch.distributed as dist  # noqa: PLC0415  tests pass a fake to NcclTransport instead

    try:
        dist.init_process_group(
            "nccl",
            store=open_or_join_tcp_store(store, worker=place.worker, host=host, limit=limit),
            rank=place.worker,
            world_size=place.num_workers,
            timeout=limit,
            device_id=device,
        )
        return NcclTransport(
            dist, place=place, pp_rank_by_stage=pp_rank_by_stage, shared_pairs=shared_pairs, device=device
        )
    except (RuntimeError, ValueError) as error:
        raise RendezvousError(f"the {place.num_workers} workers did not all connect over NCCL: {error}") from error


def open_or_join_tcp_store(store: Store, *, worker: int, host: str, limit: timedelta) -> TCPStore:
    """Return a store of torch's own, which NCCL's threads may ask at any time; worker 0 has it and tells the others."""
    if worker != 0:
        told, _, port = store.get(_TCP_STORE).decode().rpartition(":")
        return TCPStore(told, int(port), is_master=False, wait_for_workers=False, timeout=limit)
    family, kind, protocol, _, address = socket.getaddrinfo(host, 0, type=socket.SOCK_STREAM)[0]
    listener = socket.socket(family, kind, protocol)
    listener.bind(address)
    listener.listen(socket.SOMAXCONN)
    free: int = listener.getsockname()[1]
    # The store owns the socket from here on: the port is never free in between.
    own = TCPStore(
        host, free, is_master=True, wait_for_workers=False, timeout=limit, master_listen_fd=listener.detach()
    )
    store.set(_TCP_STORE, f"{host}:{free}")
    return own


class NcclTransport:
    """See Note [One communicator a direction].

    Waiting for a receive only orders the GPU's stream, so trailers are verified later, in
    one look at the device: before the vote of a step, and at its end.
    """

    def __init__(
        self,
        dist: Any,
        *,
        place: Place,
        pp_rank_by_stage: Sequence[int],
        shared_pairs: Sequence[tuple[int, int]] = (),
        device: torch.device,
    ) -> None:
        """Create all groups; every worker does so at once.

        Args:
            dist: ``torch.distributed``, with its default group over all workers.
            place: this worker's.
            pp_rank_by_stage: place in the pipeline of each stage's worker, stage 0 first.
            shared_pairs: see ``channels``.
            device: where all tensors are.
        """
        self._dist = dist
        self._device = device
        self._channels: dict[Channel, Any] = {}
        for source, target, kind in channels(pp_rank_by_stage, dp=place.dp, shared_pairs=shared_pairs):
            group = dist.new_group([source, target], backend="nccl", device_id=device)
            if place.worker in (source, target):
                self._channels[source, target, kind] = group
        self._replica = self._own_group([_at(place, w).replica for w in range(0, place.num_workers, place.pp)], place)
        self._twins = self._own_group([_at(place, w).twins for w in range(place.pp)], place)
        self._num_twins = place.dp
        self._worker = place.worker
        self._sends: list[tuple[Work, torch.Tensor, int, Departure]] = []
        self._unverified: list[tuple[torch.Tensor, Message]] = []

    def send(self, tensor: torch.Tensor, message: Message, *, to_worker: int) -> Departure:
        """See ``Transport.send``."""
        group = self._channel(self._worker, to_worker, message)
        packed = pack(tensor, message)
        try:
            work = self._dist.isend(packed, to_worker, group=group)
        except RuntimeError as error:
            raise lost(to_worker, error) from error
        departure = Departure()
        self._sends.append((work, packed, to_worker, departure))
        return departure

    def receive(self, message: Message, *, from_worker: int) -> PendingTensor:
        """See ``Transport.receive``."""
        group = self._channel(from_worker, self._worker, message)
        buffer = buffer_for(message, device=self._device)
        try:
            work = self._dist.irecv(buffer, from_worker, group=group)
        except RuntimeError as error:
            raise lost(from_worker, error) from error
        return _Receive(work, buffer, message, from_worker, self._unverified)

    def flush(self) -> None:
        """See ``Transport.flush``."""
        for work, _, worker, departure in self._sends:
            try:
                work.wait()
                departure.left = time.monotonic()
            except RuntimeError as error:
                raise lost(worker, error) from error
        self._sends.clear()
        self._verify()

    def add_over_replicas(self, tensor: torch.Tensor) -> torch.Tensor:
        """See ``Transport.add_over_replicas``."""
        if self._twins is None:
            return tensor
        parts = [torch.empty_like(tensor) for _ in range(self._num_twins)]
        self._collect(self._dist.all_gather, parts, tensor, group=self._twins)
        total = parts[0]
        for part in parts[1:]:
            total.add_(part)
        return total

    def add_over_stages(self, tensor: torch.Tensor) -> torch.Tensor:
        """See ``Transport.add_over_stages``."""
        self._verify()
        if self._replica is None:
            return tensor
        total = tensor.to(self._device, copy=True)
        self._collect(self._dist.all_reduce, total, group=self._replica)
        return total.to(tensor.device)

    def close(self) -> None:
        """See ``Transport.close``."""
        self._dist.destroy_process_group()

    def _channel(self, source: int, target: int, message: Message) -> Any:
        group = self._channels.get((source, target, message.kind))
        if group is None:
            raise PeerLostError(
                f"nothing leads from worker {source} to worker {target}, so {describe(message)} has no channel"
            )
        return group

    def _own_group(self, all_workers: list[tuple[int, ...]], place: Place) -> Any:
        own = None
        for workers in all_workers:
            if len(workers) > 1:
                group = self._dist.new_group(list(workers), backend="nccl", device_id=self._device)
                own = group if place.worker in workers else own
        return own

    def _collect(self, call: Any, *tensors: Any, group: Any) -> None:
        try:
            call(*tensors, group=group)
        except RuntimeError as error:
            raise PeerLostError(f"a sum over workers failed, so one of them is lost: {error}") from error

    def _verify(self) -> None:
        if not self._unverified:
            return
        trailers = torch.stack([trailer for trailer, _ in self._unverified]).cpu()
        for trailer, (_, message) in zip(trailers, self._unverified, strict=True):
            verify(trailer, message)
        self._unverified.clear()


class _Receive:
    def __init__(
        self,
        work: Work,
        buffer: torch.Tensor,
        message: Message,
        worker: int,
        unverified: list[tuple[torch.Tensor, Message]],
    ) -> None:
        self._work = work
        self._buffer = buffer
        self._message = message
        self._worker = worker
        self._unverified = unverified

    def wait(self) -> torch.Tensor:
        try:
            self._work.wait()
        except RuntimeError as error:
            raise lost(self._worker, error) from error
        self._unverified.append((trailer_of(self._buffer).clone(), self._message))
        return unpack(self._buffer, self._message)


def _at(place: Place, worker: int) -> Place:
    return Place(worker=worker, pp=place.pp, dp=place.dp)
