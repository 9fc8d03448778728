"""Interleaved 1F1B: 1F1B over several chunks of each worker."""

from collections.abc import Sequence

from coordinator.schedule.actions import Action, Op


def order_interleaved(
    worker: int, *, num_workers: int, num_chunks: int, num_microbatches: int, group_size: int
) -> tuple[Action, ...]:
    """Return the compute order of one worker, in units of a chunk: warmup, steady, cooldown.

    Microbatches go in groups of ``group_size``: all of a group through the first chunk, then all through
    the next; backwards likewise, last chunk first. Where every group has ``num_workers`` the bubble is a
    ``num_chunks``-th of 1F1B's, for a few more activations; larger groups hold more.
    The last group may be smaller, but not smaller than ``num_workers``: the chunks of its first
    microbatch would come around after the group's turn is over. That costs time (4 workers, 2 chunks,
    9 microbatches in groups of 4: 10 forwards over the ideal, in groups of 5: 4.5), and for some sizes the
    workers wait for each other for ever (4 workers, 3 chunks, 5 microbatches in groups of 4).
    Source: Narayanan et al. 2021 (arXiv 2104.04473), section 2.2.2, whose groups are all of ``num_workers``.
    """
    chunks = range(worker, num_chunks * num_workers, num_workers)
    forwards = _grouped(Op.FORWARD, chunks, group_size, num_microbatches)
    backwards = _grouped(Op.BACKWARD, chunks[::-1], group_size, num_microbatches)
    warmup = min(_warmup(worker, num_workers, num_chunks, group_size), len(forwards))
    pairs = zip(forwards[warmup:], backwards, strict=False)  # unequal on purpose: cooldown has the rest
    steady = [action for pair in pairs for action in pair]
    return (*forwards[:warmup], *steady, *backwards[len(backwards) - warmup :])


def in_flight_interleaved(
    worker: int, *, num_workers: int, num_chunks: int, num_microbatches: int, group_size: int
) -> int:
    """Return how many chunk activations one worker holds at most."""
    return min(_warmup(worker, num_workers, num_chunks, group_size) + 1, num_microbatches * num_chunks)


def _warmup(worker: int, num_workers: int, num_chunks: int, group_size: int) -> int:
    """Return the forwards before the first backward, where there are enough."""
    return 2 * (num_workers - 1 - worker) + (num_chunks - 1) * group_size


def _grouped(op: Op, stages: Sequence[int], group_size: int, num_microbatches: int) -> list[Action]:
    """Return ``op`` group by group, and within a group stage by stage."""
    return [
        Action(stage, op, microbatch)
        for first in range(0, num_microbatches, group_size)
        for stage in stages
        for microbatch in range(first, min(first + group_size, num_microbatches))
    ]
