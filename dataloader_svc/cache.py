"""Tokenised splits kept in memory, so that a step costs no file and no tokenizer."""

import asyncio
from collections import OrderedDict
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from dataloader_svc.corpus import FileStamp
from dataloader_svc.settings import MalformedLines
from dataloader_svc.splits import SplitName
from dataloader_svc.tokens import TokenisedRows


@dataclass(frozen=True, slots=True, kw_only=True)
class SplitKey:
    """All that the tokens of a split depend on; jobs that agree in it share one copy."""

    task: str
    labels: tuple[str, ...]
    malformed_lines: MalformedLines
    split: SplitName
    source: Path | None
    tokenizer: Path | None
    max_length: int
    max_train_rows: int | None
    stamps: tuple[FileStamp, ...]


class SplitCache:
    """The splits used last. Belongs to one event loop; loading runs in threads beside it."""

    def __init__(self, *, capacity: int) -> None:
        self._capacity = capacity
        self._loads: OrderedDict[SplitKey, asyncio.Task[TokenisedRows]] = OrderedDict()

    async def get(self, key: SplitKey, load: Callable[[], TokenisedRows]) -> TokenisedRows:
        """Return the split of this key; whoever asks first loads it, for all who ask meanwhile.

        A caller that is cancelled leaves the load running for the others. A
        load that fails is forgotten once its callers have its error.
        """
        task = self._loads.get(key)
        if task is None:
            task = asyncio.create_task(asyncio.to_thread(load))
            self._loads[key] = task
            task.add_done_callback(lambda done: self._forget_failed(key, done))
            if len(self._loads) > self._capacity:
                self._loads.popitem(last=False)
        self._loads.move_to_end(key)
        return await asyncio.shield(task)

    def _forget_failed(self, key: SplitKey, task: asyncio.Task[TokenisedRows]) -> None:
        if (task.cancelled() or task.exception() is not None) and self._loads.get(key) is task:
            del self._loads[key]
