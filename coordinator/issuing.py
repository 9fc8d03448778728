"""Sends a run's items to its workers, in order, each as soon as its step is described."""

import asyncio
from collections.abc import Callable, Mapping

from takt.v1 import data_pb2

from coordinator.data_client import DataClient, DataError
from coordinator.dispatch import TRAIN_SPLIT, Dispatch
from coordinator.events import Item, ItemKind
from coordinator.lookahead import Lookahead
from coordinator.sequence import Sequence
from coordinator.streams import Streams

MARGIN_STEPS = 2
"""Steps that are described beyond those that credit allows to be out."""


class Issuing:
    """The outgoing side of one run."""

    def __init__(
        self,
        *,
        job: str,
        sequence: Sequence,
        first_step: int,
        credit: int,
        dispatch: Dispatch,
        digests: Mapping[str, str],
        data: DataClient,
        streams: Streams,
        on_error: Callable[[Exception], None],
    ) -> None:
        self._job = job
        self._sequence = sequence
        self._first_step = first_step
        self._has_described = asyncio.Event()
        self._ahead = credit + MARGIN_STEPS
        self._dispatch = dispatch
        self._digests = digests
        self._data = data
        self._streams = streams
        self._on_error = on_error
        self._items: asyncio.Queue[Item] = asyncio.Queue()
        self._described: dict[int, data_pb2.StepDescription] = {}
        self._training: Lookahead | None = None
        self._evaluation: Lookahead | None = None
        self._task = asyncio.create_task(self._run())

    def issue(self, item: Item) -> None:
        """Send an item after those that were issued before."""
        self._items.put_nowait(item)

    async def take_description(self, step: int) -> data_pb2.StepDescription:
        """Return the description that a training step was issued with, and forget it.

        Workers that another coordinator issued it to may have done it before it is described here.

        Raises:
            DataError: nothing more can be issued, this step neither.
        """
        while step not in self._described:
            self._has_described.clear()
            waiting = asyncio.create_task(self._has_described.wait())
            await asyncio.wait({waiting, self._task}, return_when=asyncio.FIRST_COMPLETED)
            waiting.cancel()
            if self._task.done() and step not in self._described:
                raise DataError(f"step {step} was not described, so it cannot be written down")
        return self._described.pop(step)

    def close(self) -> None:
        """Send nothing more."""
        self._task.cancel()
        for lookahead in (self._training, self._evaluation):
            if lookahead is not None:
                lookahead.close()

    async def _run(self) -> None:
        self._training = self._lookahead(
            data_pb2.PHASE_TRAIN, TRAIN_SPLIT, self._sequence.total_steps, first=self._first_step
        )
        try:
            while True:
                item = await self._items.get()
                description = await self._description(item)
                for worker, message in self._dispatch.messages(item, description):
                    self._streams.issue(worker, message)
        except Exception as error:
            # Whatever it is, nothing more can be issued: the run must hear of it.
            self._on_error(error)

    async def _description(self, item: Item) -> data_pb2.StepDescription | None:
        match item.kind:
            case ItemKind.TRAIN if self._training is not None:
                description = await self._training.take(item.step)
                self._described[item.step] = description
                self._has_described.set()
                return description
            case ItemKind.EVALUATE:
                if item.step == 1 or self._evaluation is None:
                    steps = dict(self._sequence.evaluated)[item.split]
                    self._evaluation = self._lookahead(data_pb2.PHASE_EVALUATE, item.split, steps)
                return await self._evaluation.take(item.step)
        return None

    def _lookahead(self, phase: data_pb2.Phase, split: str, last: int, *, first: int = 1) -> Lookahead:
        async def fetch(first: int, count: int) -> list[data_pb2.StepDescription]:
            return await self._data.describe(
                self._job, phase=phase, split=split, digest=self._digests[split], first=first, count=count
            )

        return Lookahead(fetch, first=first, last=last, ahead=self._ahead)
