"""Transport over Gloo, for CPUs, and for GPUs that have no NCCL between them."""

from datetime import timedelta
from typing import Any, Protocol

import torch
from torch.distributed import ProcessGroupGloo

from stage_worker.comm_message import buffer_for, pack, trailer_of, unpack, verify
from stage_worker.comm_place import Place
from stage_worker.comm_sends import PendingSends, Work, lost
from stage_worker.comm_store import PrefixStore, RendezvousError, Store
from stage_worker.engine.commands import Phase
from stage_worker.engine.transport import Departure, Message, PeerLostError, PendingTensor

_CPU = torch.device("cpu")

# Note [Tags]: Gloo's tags are 31 bits, so each part counts modulo its room: 16 steps, 4,096
# boundaries, 4,096 microbatches. Where a step has more, tags repeat, and that does no harm:
# messages of one tag match in the order they are sent, a plan is checked to issue what crosses one
# ordered pair of workers and kind in the same order at both ends, and the trailer tells whether
# that was right.
_STEPS, _BOUNDARIES, _MICROBATCHES = 1 << 4, 1 << 12, 1 << 12


class Group(Protocol):
    """What of torch's ``ProcessGroupGloo`` is used; ranks count within the group."""

    def size(self) -> int:
        """Return the number of members."""

    def send(self, tensors: list[torch.Tensor], rank: int, tag: int) -> Work:
        """Start to send the one tensor; it must not change until the work is done."""

    def recv(self, tensors: list[torch.Tensor], rank: int, tag: int) -> Work:
        """Start to receive into the one tensor."""

    def allgather(self, parts: list[list[torch.Tensor]], own: list[torch.Tensor]) -> Work:
        """Start to gather ``own[0]`` of every member into ``parts[0]``."""

    def allreduce(self, tensors: list[torch.Tensor]) -> Work:
        """Start to add up ``tensors[0]`` over all members, in place."""


def tag_of(message: Message) -> int:
    """Return the message's tag; see Note [Tags]."""
    tag = message.step % _STEPS
    tag = tag * _BOUNDARIES + message.boundary % _BOUNDARIES
    tag = tag * _MICROBATCHES + message.microbatch % _MICROBATCHES
    tag = tag * 4 + message.kind
    return tag * 2 + (message.phase is Phase.EVALUATE)


def join_gloo(store: Store, *, place: Place, host: str, device: torch.device, limit: timedelta) -> "GlooTransport":
    """Connect to all other workers; blocks until all are here.

    Args:
        store: of this attempt alone.
        place: this worker's.
        host: address of this machine; nothing is bound to another one, and the machine's own name is not looked up.
        device: where the engine's tensors are.
        limit: of every wait. Passing it breaks the connection for both ends.

    Raises:
        RendezvousError: not all came in time, or ``host`` is no address of this machine.
    """
    try:
        interface = ProcessGroupGloo.create_device(hostname=host)
        return GlooTransport(
            pairs=_group("pairs", store, tuple(range(place.num_workers)), place.worker, interface, limit),
            replica=_group("replica", store, place.replica, place.worker, interface, limit),
            twins=_group("twins", store, place.twins, place.worker, interface, limit),
            device=device,
        )
    except RuntimeError as error:
        raise RendezvousError(
            f"the {place.num_workers} workers of the attempt did not all connect; "
            f"worker {place.worker} told the others to use {host}: {error}"
        ) from error


def _group(
    name: str,
    store: Store,
    workers: tuple[int, ...],
    worker: int,
    interface: Any,
    limit: timedelta,
) -> Group | None:
    if len(workers) == 1:
        return None
    # Made directly: a group that is nobody's default leaves nothing behind in torch.distributed.
    gloo: Any = ProcessGroupGloo
    options = gloo._Options()
    options._devices = [interface]
    options._timeout = limit
    prefix = PrefixStore(f"{name}/{workers[0]}", store)
    group: Group = gloo(prefix, workers.index(worker), len(workers), options)
    return group


class GlooTransport:
    """One group and tags for transfers; groups of their own for sums, whose tags Gloo counts itself."""

    def __init__(
        self,
        *,
        pairs: Group | None,
        replica: Group | None,
        twins: Group | None,
        device: torch.device,
    ) -> None:
        """Take joined groups; None stands for a group of one.

        Args:
            pairs: all workers, ranked by worker.
            replica: the workers of one pipeline, by pp rank.
            twins: the workers with the same stages, by dp rank.
            device: where the engine's tensors are.
        """
        self._pairs = pairs
        self._replica = replica
        self._twins = twins
        self._device = device
        self._sends = PendingSends()

    def send(self, tensor: torch.Tensor, message: Message, *, to_worker: int) -> Departure:
        """See ``Transport.send``."""
        assert self._pairs is not None, "a single worker has nobody to send to"
        packed = pack(tensor, message).to(_CPU)
        try:
            work = self._pairs.send([packed], to_worker, tag_of(message))
        except RuntimeError as error:
            raise lost(to_worker, error) from error
        return self._sends.add(work, packed, worker=to_worker)

    def receive(self, message: Message, *, from_worker: int) -> PendingTensor:
        """See ``Transport.receive``."""
        assert self._pairs is not None, "a single worker has nobody to receive from"
        buffer = buffer_for(message, device=_CPU)
        try:
            work = self._pairs.recv([buffer], from_worker, tag_of(message))
        except RuntimeError as error:
            raise lost(from_worker, error) from error
        return _Receive(work, buffer, message, from_worker, self._device)

    def flush(self) -> None:
        """See ``Transport.flush``."""
        self._sends.flush()

    def add_over_replicas(self, tensor: torch.Tensor) -> torch.Tensor:
        """See ``Transport.add_over_replicas``."""
        if self._twins is None:
            return tensor
        own = tensor.to(_CPU)
        parts = [torch.empty_like(own) for _ in range(self._twins.size())]
        _finish(self._twins.allgather([parts], [own]), "replicas")
        total = parts[0]
        for part in parts[1:]:
            total.add_(part)
        return total.to(tensor.device)

    def add_over_stages(self, tensor: torch.Tensor) -> torch.Tensor:
        """See ``Transport.add_over_stages``."""
        if self._replica is None:
            return tensor
        total = tensor.to(_CPU, copy=True)
        _finish(self._replica.allreduce([total]), "stages")
        return total.to(tensor.device)

    def close(self) -> None:
        """See ``Transport.close``."""
        self._sends.close()
        self._pairs = self._replica = self._twins = None


class _Receive:
    def __init__(self, work: Work, buffer: torch.Tensor, message: Message, worker: int, device: torch.device) -> None:
        self._work = work
        self._buffer = buffer
        self._message = message
        self._worker = worker
        self._device = device

    def wait(self) -> torch.Tensor:
        try:
            self._work.wait()
        except RuntimeError as error:
            raise lost(self._worker, error) from error
        verify(trailer_of(self._buffer), self._message)
        return unpack(self._buffer, self._message).to(self._device)


def _finish(work: Work, among: str) -> None:
    try:
        work.wait()
    except RuntimeError as error:
        raise PeerLostError(f"a sum over the {among} failed, so one of them is lost: {error}") from error
