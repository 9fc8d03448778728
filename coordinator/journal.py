"""The one thread in which the coordinator touches its disk: the job store and the files of runs."""

import asyncio
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import TypeVar

from coordinator.store import Store

T = TypeVar("T")


class Journal:
    """Runs calls one after the other in a thread of its own, with the store that lives there."""

    def __init__(self, state_dir: Path) -> None:
        self._state_dir = state_dir
        self._thread = ThreadPoolExecutor(max_workers=1, thread_name_prefix="journal")
        self._store: Store | None = None

    async def open(self) -> None:
        """Open the store.

        Raises:
            StoreError: it cannot be opened.
        """
        self._store = await asyncio.get_running_loop().run_in_executor(self._thread, Store.open, self._state_dir)

    async def do(self, action: Callable[[Store], T]) -> T:
        """Return what ``action`` makes of the store; when it returns, all is on disk."""
        if self._store is None:
            raise RuntimeError("the journal is not open")
        return await asyncio.get_running_loop().run_in_executor(self._thread, action, self._store)

    async def close(self) -> None:
        """Finish what is under way and close the store."""
        if self._store is not None:
            await self.do(Store.close)
            self._store = None
        self._thread.shutdown()
