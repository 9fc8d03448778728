"""Tokenised splits in memory."""

import asyncio
import threading
from collections.abc import Callable
from pathlib import Path

import pytest

from dataloader_svc.cache import SplitCache, SplitKey
from dataloader_svc.corpus import stamps
from dataloader_svc.settings import MalformedLines
from dataloader_svc.splits import SplitName
from dataloader_svc.tokens import TokenisedRows
from tests.data_jobs import settings
from tests.unit.data_rows import split_of


def key(task: str) -> SplitKey:
    return SplitKey(
        task=task,
        labels=("no", "yes"),
        malformed_lines=MalformedLines.REFUSE,
        split=SplitName.TRAIN,
        source=None,
        tokenizer=None,
        max_length=8,
        max_train_rows=None,
        stamps=(),
    )


def rows() -> TokenisedRows:
    return split_of()


@pytest.mark.parametrize("name", ["tokenizer.json", "tokenizer_config.json", "special_tokens_map.json"])
def test_stamps_change_with_each_file_that_tells_tokens(tmp_path: Path, name: str) -> None:
    job = settings({"data.tokenizer": str(tmp_path)})
    before = stamps(job, SplitName.TRAIN)
    (tmp_path / "README.md").write_text("{}")
    assert stamps(job, SplitName.TRAIN) == before

    (tmp_path / name).write_text("{}")

    assert stamps(job, SplitName.TRAIN) != before


class Loads:
    """Counts loads; one waits until it is let go."""

    def __init__(self) -> None:
        self.names: list[str] = []
        self.started = threading.Event()
        self.go = threading.Event()

    def of(self, name: str) -> Callable[[], TokenisedRows]:
        def load() -> TokenisedRows:
            self.names.append(name)
            self.started.set()
            assert self.go.wait(10)
            return rows()

        return load


async def test_get_asked_at_once_by_many_loads_once() -> None:
    cache, loads = SplitCache(capacity=2), Loads()
    waiting = [asyncio.create_task(cache.get(key("a"), loads.of("a"))) for _ in range(5)]
    await asyncio.to_thread(loads.started.wait, 10)
    loads.go.set()

    found = await asyncio.gather(*waiting)

    assert loads.names == ["a"]
    assert all(split is found[0] for split in found)


async def test_get_cancelled_caller_leaves_the_load_to_the_others() -> None:
    cache, loads = SplitCache(capacity=2), Loads()
    first = asyncio.create_task(cache.get(key("a"), loads.of("a")))
    second = asyncio.create_task(cache.get(key("a"), loads.of("a")))
    await asyncio.to_thread(loads.started.wait, 10)
    first.cancel()
    loads.go.set()

    assert (await second).num_rows == 0
    assert loads.names == ["a"]


async def test_get_failed_load_is_tried_again() -> None:
    cache, loads = SplitCache(capacity=2), Loads()
    loads.go.set()

    def fail() -> TokenisedRows:
        raise OSError("disk is gone")

    with pytest.raises(OSError, match="disk is gone"):
        await cache.get(key("a"), fail)
    await cache.get(key("a"), loads.of("a"))

    assert loads.names == ["a"]


async def test_get_over_capacity_forgets_the_split_used_longest_ago() -> None:
    cache, loads = SplitCache(capacity=2), Loads()
    loads.go.set()

    for name in ("a", "b", "a", "c", "a", "b"):
        await cache.get(key(name), loads.of(name))

    assert loads.names == ["a", "b", "c", "b"]
