"""Values that are loaded once for all who ask."""

import asyncio
import threading
from collections.abc import Callable

import pytest

from dataloader_svc.cache import LoadCache


class Loads:
    """Counts loads; one waits until it is let go."""

    def __init__(self) -> None:
        self.names: list[str] = []
        self.started = threading.Event()
        self.go = threading.Event()

    def of(self, name: str) -> Callable[[], str]:
        def load() -> str:
            self.names.append(name)
            self.started.set()
            assert self.go.wait(10)
            return name.upper()

        return load


async def test_get_asked_at_once_by_many_loads_once() -> None:
    cache, loads = LoadCache[str, str](capacity=2), Loads()
    waiting = [asyncio.create_task(cache.get("a", loads.of("a"))) for _ in range(5)]
    await asyncio.to_thread(loads.started.wait, 10)
    loads.go.set()

    found = await asyncio.gather(*waiting)

    assert loads.names == ["a"]
    assert found == ["A"] * 5


async def test_get_cancelled_caller_leaves_the_load_to_the_others() -> None:
    cache, loads = LoadCache[str, str](capacity=2), Loads()
    first = asyncio.create_task(cache.get("a", loads.of("a")))
    second = asyncio.create_task(cache.get("a", loads.of("a")))
    await asyncio.to_thread(loads.started.wait, 10)
    first.cancel()
    loads.go.set()

    assert await second == "A"
    assert loads.names == ["a"]


async def test_get_failed_load_is_tried_again() -> None:
    cache, loads = LoadCache[str, str](capacity=2), Loads()
    loads.go.set()

    def fail() -> str:
        raise OSError("disk is gone")

    with pytest.raises(OSError, match="disk is gone"):
        await cache.get("a", fail)
    await cache.get("a", loads.of("a"))

    assert loads.names == ["a"]


async def test_get_over_capacity_forgets_the_value_used_longest_ago() -> None:
    cache, loads = LoadCache[str, str](capacity=2), Loads()
    loads.go.set()

    for name in ("a", "b", "a", "c", "a", "b"):
        await cache.get(name, loads.of(name))

    assert loads.names == ["a", "b", "c", "b"]
