"""Which receive belongs to which send."""

from collections import defaultdict
from collections.abc import Iterator
from typing import NamedTuple

from coordinator.trace.timeline import Span, Trace, Track

_Key = tuple[int, int, str, int | None, int | None]
"""Replica, step, what travels, the stage whose result it is, microbatch."""


class Transfer(NamedTuple):
    """The two ends of one transfer; workers and spans by their place in the trace."""

    send: tuple[int, int]
    receive: tuple[int, int]


def transfers_of(trace: Trace) -> Iterator[Transfer]:
    """Yield all transfers of which both ends are known, by the first send of their kind.

    An evaluation counts under the step before it, so several transfers may look alike; their ends pair up in order,
    as a channel keeps it. Where one end lacks some of them nobody can say which, and none is yielded.
    """
    sends: defaultdict[_Key, list[tuple[int, int]]] = defaultdict(list)
    receives: defaultdict[_Key, list[tuple[int, int]]] = defaultdict(list)
    for place, worker in enumerate(trace.workers):
        for index, span in enumerate(worker.spans):
            if span.track is Track.SEND:
                sends[_key(worker.dp_rank, span)].append((place, index))
            elif span.track is Track.RECEIVE:
                receives[_key(worker.dp_rank, span)].append((place, index))
    for key, sent in sends.items():
        received = receives.get(key, [])
        if len(sent) == len(received):
            yield from map(Transfer, sent, received)


def _key(dp_rank: int, span: Span) -> _Key:
    return dp_rank, span.step, span.name, span.stage, span.microbatch
