"""Values that take time to make, kept in memory for whoever asks next."""

import asyncio
from collections import OrderedDict
from collections.abc import Callable, Hashable
from concurrent.futures import Executor
from typing import Generic, TypeVar

KeyT = TypeVar("KeyT", bound=Hashable)
ValueT = TypeVar("ValueT")


class LoadCache(Generic[KeyT, ValueT]):
    """The values used last. Belongs to one event loop; loading runs in threads beside it."""

    def __init__(self, *, capacity: int, threads: Executor | None = None) -> None:
        """Keep up to ``capacity`` values, loaded on ``threads``; on the loop's own where there are none."""
        self._capacity = capacity
        self._threads = threads
        self._loads: OrderedDict[KeyT, asyncio.Future[ValueT]] = OrderedDict()

    async def get(self, key: KeyT, load: Callable[[], ValueT]) -> ValueT:
        """Return the value of this key; whoever asks first loads it, for all who ask meanwhile.

        A caller that is cancelled leaves the load running for the others. A
        load that fails is forgotten once its callers have its error.
        """
        task = self._loads.get(key)
        if task is None:
            task = asyncio.get_running_loop().run_in_executor(self._threads, load)
            self._loads[key] = task
            task.add_done_callback(lambda done: self._forget_failed(key, done))
            if len(self._loads) > self._capacity:
                self._loads.popitem(last=False)
        self._loads.move_to_end(key)
        return await asyncio.shield(task)

    def _forget_failed(self, key: KeyT, task: asyncio.Future[ValueT]) -> None:
        if (task.cancelled() or task.exception() is not None) and self._loads.get(key) is task:
            del self._loads[key]
