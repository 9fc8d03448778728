"""ZB-V: two chunks in a V, backwards in halves."""

from collections import Counter

from coordinator.schedule.actions import Action, Op
from coordinator.schedule.numbering import StageOp


def order_zbv(worker: int, *, num_workers: int, num_microbatches: int) -> tuple[Action, ...]:
    """Return the compute order of one worker, which holds stage ``worker`` and its mirror in the V.

    With ``F = I = W`` and ``2 * num_workers - 1`` microbatches or more, no worker waits once it has begun,
    and each holds as much as stage 0 of 1F1B; unequal costs open gaps.
    The phases need that many microbatches. With fewer, the order is the one of so many without those that
    are not there: no action takes anything from another microbatch, so what is left is whole, and in order.
    Source: Qi et al. 2023, Zero Bubble Pipeline Parallelism (arXiv 2401.10241).
    """
    done: Counter[StageOp] = Counter()
    order = []
    for pattern, times in _phases(worker, num_workers, max(num_microbatches, 2 * num_workers - 1)):
        for _ in range(times):
            if all(done[each] >= num_microbatches for each in pattern):
                break  # of a thousand workers with few microbatches that is most of it
            for each in pattern:
                if done[each] < num_microbatches:
                    order.append(Action(*each, done[each]))
                done[each] += 1
    return tuple(order)


def in_flight_zbv(worker: int, *, num_workers: int, num_microbatches: int) -> int:
    """Return how many chunk activations one worker holds at most: two a microbatch, in the warmup fewer."""
    return min(2 * num_workers, 2 * num_microbatches, num_microbatches + worker + 1)


def _phases(worker: int, num_workers: int, num_microbatches: int) -> list[tuple[list[StageOp], int]]:
    """Return what the worker does, in order: ops of whichever microbatch is next for each, and how often they come.

    ``0`` is its chunk on the way down, ``1`` on the way up.
    """
    down, up = worker, 2 * num_workers - 1 - worker
    f0, i0, w0 = (down, Op.FORWARD), (down, Op.INPUT_GRADIENT), (down, Op.WEIGHT_GRADIENT)
    f1, i1, w1 = (up, Op.FORWARD), (up, Op.INPUT_GRADIENT), (up, Op.WEIGHT_GRADIENT)
    before, after = worker, num_workers - worker  # workers above this one, and from it to the V's foot
    late = num_workers - 1 - worker  # rounds of the steady phase without a forward on the way down
    return [
        ([f0], 2 * after - 1),
        ([f1, f0], before),
        ([f1, i1, w1], after),
        ([f0, i0, w0, f1, i1, w1], num_microbatches - num_workers - late),
        ([i0, w0, f1, i1, w1], late),
        ([i0, i1], before),
        ([i0, w0], after),
        ([w1], before),
        ([w0], before),
    ]
