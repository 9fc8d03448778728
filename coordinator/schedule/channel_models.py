"""Tells which weaker channels would do for a plan: fewer of them, or calls that hold a worker up.

A plan is proved for the channels of Note [One channel per ordered pair and kind]. Here its compute orders are
run on weaker ones. On each of them a worker calls the receive of its first action, then behind every
action the send of its result and the receive of the next action's input. A call completes when the other
end has made the matching one; nothing is buffered.
"""

import enum
from collections import defaultdict, deque
from collections.abc import Iterator, Sequence

from coordinator.schedule.actions import Action, Op
from coordinator.schedule.channels import channel_of, counterpart, peer_of, receive_of, send_of
from coordinator.schedule.placement import Placement


class ChannelModel(enum.StrEnum):
    """How messages could travel."""

    BLOCKING = "blocking calls"
    """One call at a time, waited for; the messages of an ordered pair match in order."""
    BATCHED = "a send posted with the next receive"
    """Both are waited for; the messages of an ordered pair match in order."""
    PAIR = "one in-order channel per pair"
    """Here and below only a receive is waited for, and a channel completes its calls one by one."""
    PAIR_AND_KIND = "one in-order channel per pair and kind"
    ORDERED_PAIR = "one in-order channel per ordered pair"
    ORDERED_PAIR_AND_KIND = "one in-order channel per ordered pair and kind"
    """What a plan is proved for."""

    @property
    def waits_for_sends(self) -> bool:
        """Whether a send holds its worker up until it is received."""
        return self in (ChannelModel.BLOCKING, ChannelModel.BATCHED)


class Verdict(enum.StrEnum):
    """What becomes of a step."""

    OK = "ok"
    DEADLOCK = "deadlock"
    MISMATCH = "mismatch"
    """A receive meets the send of another message."""


def report(orders: Sequence[Sequence[Action]], placement: Placement) -> dict[ChannelModel, Verdict]:
    """Return what becomes of a step with these compute ``orders``, one per worker, on each model."""
    return {model: _Run(model, orders, placement).verdict() for model in ChannelModel}


_SENDS = frozenset({Op.SEND_ACTIVATION, Op.SEND_GRADIENT})


class _Run:
    """One execution on one model. Computing takes no time: what happens depends on the order of calls alone."""

    def __init__(self, model: ChannelModel, orders: Sequence[Sequence[Action]], placement: Placement) -> None:
        self._model, self._placement = model, placement
        self._rounds = [_rounds(order, model, placement) for order in orders]
        self._waits_for: list[set[Action]] = [set() for _ in orders]
        self._open: defaultdict[tuple[object, ...], deque[Action]] = defaultdict(deque)
        """Per channel and worker, the calls that are made and not complete, oldest first."""
        self._has_mismatch = False

    def verdict(self) -> Verdict:
        """Run until nothing moves. A stuck channel stays stuck, so the order of turns changes nothing."""
        ready = deque(range(len(self._rounds)))
        while ready:
            worker = ready.popleft()
            while not self._waits_for[worker] and (calls := next(self._rounds[worker], None)) is not None:
                self._waits_for[worker].update(c for c in calls if self._model.waits_for_sends or c.op not in _SENDS)
                for call in calls:
                    ready.extend(self._make(call, worker))
        if self._has_mismatch:
            return Verdict.MISMATCH
        return Verdict.DEADLOCK if any(self._open.values()) else Verdict.OK

    def _make(self, call: Action, worker: int) -> set[int]:
        """Make ``call`` and complete what now can be; return the peer if nothing holds it up any more."""
        channel, peer = self._channel(call), peer_of(call, self._placement)
        here, there = self._open[channel, worker], self._open[channel, peer]
        here.append(call)
        released = set()
        while here and there:
            ours, theirs = here[0], there[0]
            if ours != counterpart(theirs):
                self._has_mismatch |= (ours.op in _SENDS) != (theirs.op in _SENDS)
                break
            self._waits_for[worker].discard(here.popleft())
            self._waits_for[peer].discard(there.popleft())
            if not self._waits_for[peer]:
                released.add(peer)
        return released

    def _channel(self, call: Action) -> tuple[object, ...]:
        """Return what tells the call's channel from the others of the model."""
        channel = channel_of(call, self._placement)
        ordered, pair = (channel.sender, channel.receiver), frozenset({channel.sender, channel.receiver})
        match self._model:
            case ChannelModel.PAIR:
                return (pair,)
            case ChannelModel.PAIR_AND_KIND:
                return (pair, channel.kind)
            case ChannelModel.ORDERED_PAIR_AND_KIND:
                return (*ordered, channel.kind)
            case _:
                return ordered


def _rounds(order: Sequence[Action], model: ChannelModel, placement: Placement) -> Iterator[list[Action]]:
    """Yield the calls that a worker makes at once."""
    receives = [receive_of(action, placement) for action in order]
    sends = [send_of(action, placement) for action in order]
    if model is ChannelModel.BLOCKING:
        groups = [[call] for pair in zip(receives, sends, strict=True) for call in pair]
    else:
        groups = [receives[:1], *([send, receive] for send, receive in zip(sends, [*receives[1:], None], strict=True))]
    for group in groups:
        yield [call for call in group if call is not None]
