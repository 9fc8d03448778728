"""The gradients of parameters that several blocks use: one sum over all uses, in layer order, for every holder.

Note [In layer order]: the sum starts at the worker of the first use, goes from worker to worker along the layers,
each adding its own uses, and comes back from the last one. So its bits do not depend on the cut, with one worker
neither, and no worker keeps more than one sum in memory.

Note [One order at both ends]: each worker goes through the messages in one order that all agree on, leg by leg and
within a leg parameter by parameter, the whole sums last. So what crosses one pair of workers is issued in the same
order at both ends.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import groupby

import torch

from stage_worker.engine.commands import Phase
from stage_worker.engine.transport import Message, TransferKind, Transport
from stage_worker.engine.weights import Weights
from stage_worker.models.loaded import LoadedModel


@dataclass(frozen=True, slots=True)
class Hop:
    """One worker's turn in a sum."""

    worker: int
    blocks: tuple[int, ...]
    """Uses that it adds, in layer order."""


@dataclass(frozen=True, slots=True)
class Route:
    """How the sum of one shared parameter goes."""

    name: str
    hops: tuple[Hop, ...]

    @property
    def receivers(self) -> tuple[int, ...]:
        """Workers that the last one tells the sum, in the order of their first turn."""
        return tuple(dict.fromkeys(hop.worker for hop in self.hops if hop.worker != self.hops[-1].worker))

    @property
    def pairs(self) -> tuple[tuple[int, int], ...]:
        """Pairs (from, to) of different workers that it crosses, in order."""
        there = ((one.worker, other.worker) for one, other in zip(self.hops, self.hops[1:], strict=False))
        back = ((self.hops[-1].worker, worker) for worker in self.receivers)
        return (*there, *back)


def routes_of(model: LoadedModel, *, worker_by_stage: Sequence[int]) -> tuple[Route, ...]:
    """Return the routes of all parameters that more than one block uses, in canonical order; the same everywhere.

    Args:
        model: any worker's part.
        worker_by_stage: the workers of this replica that hold each stage, stage 0 first.
    """
    worker_by_block = [worker_by_stage[stage] for stage in model.stage_of_block]
    routes = []
    for name in model.uses.names:
        blocks = model.uses.blocks_of(name)
        if len(blocks) > 1:
            hops = groupby(blocks, key=worker_by_block.__getitem__)
            routes.append(Route(name, tuple(Hop(worker, tuple(turn)) for worker, turn in hops)))
    return tuple(routes)


class SharedSums:
    """Adds up the gradients of the shared parameters that one worker holds."""

    def __init__(self, weights: Weights, routes: Sequence[Route], transport: Transport, *, worker: int) -> None:
        """Take all routes of this replica; ``worker`` is this one."""
        self._weights = weights
        held = {name for name, master in weights.masters.items() if master.requires_grad}
        self._routes = [(number, route) for number, route in enumerate(routes) if route.name in held]
        self._transport = transport
        self._worker = worker

    def add(self, *, step: int) -> dict[str, torch.Tensor]:
        """Return the whole gradient of each shared parameter that is trained and held here, by name.

        Raises:
            PeerLostError, TransferError: as ``PendingTensor.wait``.
        """
        own = {route.name: self._weights.take(route.name) for _, route in self._routes}
        totals: dict[str, torch.Tensor] = {}
        for leg in range(max((len(route.hops) for _, route in self._routes), default=0)):
            for number, route in self._routes:
                if leg < len(route.hops) and route.hops[leg].worker == self._worker:
                    self._take_turn(number, route, leg, own[route.name], totals, step=step)
        for number, route in self._routes:
            last, message = route.hops[-1].worker, self._message(number, route, len(route.hops), step=step)
            if last == self._worker:
                for worker in route.receivers:
                    self._send(totals[route.name], message, worker)
            else:
                arrived = self._transport.receive(message, from_worker=last).wait()
                totals[route.name] = arrived.view_as(self._weights.masters[route.name])
        return totals

    def _take_turn(
        self,
        number: int,
        route: Route,
        leg: int,
        own: dict[int, torch.Tensor],
        totals: dict[str, torch.Tensor],
        *,
        step: int,
    ) -> None:
        """Add the uses of one turn to the sum, and let go of their gradients."""
        master = self._weights.masters[route.name]
        total: torch.Tensor | None = None
        if leg > 0:
            message = self._message(number, route, leg, step=step)
            total = self._transport.receive(message, from_worker=route.hops[leg - 1].worker).wait().view_as(master)
        for block in route.hops[leg].blocks:
            gradient = own.pop(block, None)
            if gradient is not None:
                total = gradient if total is None else total.add_(gradient)
        if total is None:
            total = torch.zeros_like(master)
        if leg + 1 < len(route.hops):
            self._send(total, self._message(number, route, leg + 1, step=step), route.hops[leg + 1].worker)
        else:
            totals[route.name] = total

    def _send(self, total: torch.Tensor, message: Message, worker: int) -> None:
        self._transport.send(total.reshape(-1), message, to_worker=worker)

    def _message(self, number: int, route: Route, leg: int, *, step: int) -> Message:
        return Message(
            phase=Phase.TRAIN,
            step=step,
            kind=TransferKind.SHARED_GRADIENT,
            boundary=leg,
            microbatch=number,
            shape=(self._weights.masters[route.name].numel(),),
            dtype=torch.float32,
        )
