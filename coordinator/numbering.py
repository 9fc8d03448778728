"""Sequence numbers of a run's commands: they follow from its plan, so any coordinator counts the same. Pure."""

from collections.abc import Sequence as Items

from coordinator.events import Item, ItemKind
from coordinator.planning import JobPlan
from coordinator.sequence import Sequence


def commands_before(plan: JobPlan, sequence: Sequence, *, step: int) -> tuple[int, ...]:
    """Return how many commands each worker was issued up to and with a training step; 0 where none was to be done.

    Args:
        plan: of the job.
        sequence: of the attempt, as it began.
        step: at least the one that the attempt began after.
    """
    count = dict.fromkeys(ItemKind, 0)
    last: Item | None = None
    while step > sequence.begins_after:
        last = sequence.after(last)
        assert last is not None, f"step {step} is one of the attempt"
        count[last.kind] += 1
        if last.kind is ItemKind.TRAIN and last.step == step:
            break
    places = [plan.topology.coordinates(worker) for worker in range(plan.topology.num_workers)]
    return tuple(
        count[ItemKind.TRAIN] * _length(plan.train.workers, place.pp_rank)
        + count[ItemKind.EVALUATE] * _length(plan.evaluate.workers, place.pp_rank)
        + count[ItemKind.SAVE] * (place.dp_rank == 0)
        for place in places
    )


def _length(workers: Items[Items[object]], pp_rank: int) -> int:
    return len(workers[pp_rank])
