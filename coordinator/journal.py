"""The one thread in which the coordinator touches its disk: the job store and the files of runs."""

import asyncio
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import TypeVar

from coordinator.store import LostError, Store

T = TypeVar("T")


class Journal:
    """Runs calls one after the other in a thread of its own, with the store that lives there.

    Made inside the event loop that it is for.
    """

    def __init__(self, open_store: Callable[[], Store]) -> None:
        """``open_store`` is called in the journal's thread."""
        self._open_store = open_store
        self._thread = ThreadPoolExecutor(max_workers=1, thread_name_prefix="journal")
        self._store: Store | None = None
        self.lost: asyncio.Future[LostError] = asyncio.get_running_loop().create_future()
        """Done, with what happened, once another coordinator has taken over what this one writes."""
        self._never = asyncio.Event()

    async def open(self) -> None:
        """Open the store.

        Raises:
            StoreError: it cannot be opened.
        """
        self._store = await asyncio.get_running_loop().run_in_executor(self._thread, self._open_store)

    async def do(self, action: Callable[[Store], T]) -> T:
        """Return what ``action`` makes of the store; when it returns, all is on disk.

        Whoever asks once all is lost waits for the end of the process, which ``lost`` brings.
        """
        if self._store is None:
            raise RuntimeError("the journal is not open")
        if not self.lost.done():
            try:
                return await asyncio.get_running_loop().run_in_executor(self._thread, action, self._store)
            except LostError as error:
                if not self.lost.done():
                    self.lost.set_result(error)
        await self._never.wait()
        raise AssertionError("nobody sets it")

    async def close(self) -> None:
        """Finish what is under way and close the store."""
        if self._store is not None:
            await asyncio.get_running_loop().run_in_executor(self._thread, self._store.close)
            self._store = None
        self._thread.shutdown()
