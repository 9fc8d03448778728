"""Which of the workers' numbered messages need not be said again. Pure."""

from collections import deque
from collections.abc import Hashable, Iterable

from takt.v1 import data_pb2, workers_pb2

from coordinator.events import Item, ItemKind
from coordinator.run_state import Outstanding


class Receipts:
    """The messages of one run's workers, by worker and number.

    A worker counts what it says from 1 and says it again, in order, after every break of its stream, from the
    first number that was not acknowledged. So the numbers that are heard of one worker begin anywhere, where
    this program was not there from the start, and then follow one another, some of them more than once.
    """

    def __init__(self, num_workers: int) -> None:
        self._highest = [0] * num_workers
        self._open: list[deque[tuple[int, Hashable]]] = [deque() for _ in range(num_workers)]
        """Number and item of the messages whose item is not settled, ascending."""

    def note(self, worker: int, number: int, item: Hashable | None) -> bool:
        """Note a message; return whether it is new.

        Args:
            worker: who said it.
            number: its number; 0 where it has none, then it is new however often it comes.
            item: what it is about, until ``settle``; None where it is of no use any more once it was heard.
        """
        if number == 0:
            return True
        if number <= self._highest[worker]:
            return False
        self._highest[worker] = number
        if item is not None:
            self._open[worker].append((number, item))
        return True

    def settle(self, item: Hashable) -> None:
        """All that was said about an item is on disk, or of no use any more."""
        for worker, messages in enumerate(self._open):
            if any(about == item for _, about in messages):
                self._open[worker] = deque((number, about) for number, about in messages if about != item)

    def acknowledged(self, worker: int) -> int:
        """Return the number up to which a worker may forget its messages; 0 for none."""
        messages = self._open[worker]
        return messages[0][0] - 1 if messages else self._highest[worker]


def subject_of(message: workers_pb2.ExecuteRequest, outstanding: Iterable[Outstanding]) -> Hashable | None:
    """Return the item that a worker's message is about, as its receipt is filed; None where nothing of it is kept.

    Args:
        message: what the worker said.
        outstanding: what was issued and is not committed; of evaluations only the steps of one at a time.
    """
    match message.WhichOneof("message"):
        case "step" if message.step.phase == data_pb2.PHASE_TRAIN:
            return Item(ItemKind.TRAIN, message.step.step, message.step.step)
        case "step" | "rows":
            after = message.step.after if message.HasField("step") else message.rows.after
            items = (entry.item for entry in outstanding if entry.item.kind is ItemKind.EVALUATE)
            return next((evaluation(item.split, item.after) for item in items if item.after == after), None)
        case "saved":
            return Item(ItemKind.SAVE, message.saved.step, message.saved.step)
        case "failure":
            return message.failure.type  # never settled: the run ends with it
    return None


def evaluation(split: str, after: int) -> Hashable:
    """Return what the receipts of all steps of an evaluation are filed under: of a split, after a training step."""
    return split, after
