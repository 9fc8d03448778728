"""Checkpoints that are written beside the training."""

import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file, save

from stage_worker.checkpoint import Shard
from stage_worker.saving import Saved, Saving

pytestmark = pytest.mark.timeout(30)
LARGE = 2**20 + 3
"""Elements of a tensor that is written in two pieces."""
NUM_WRITES = 6
"""Of a shard: its header, the piece of b, of n and of z, two of a."""


def trained() -> dict[str, torch.Tensor]:
    return {
        "b": torch.arange(6.0).view(2, 3).t(),  # not contiguous
        "a": torch.arange(float(LARGE)),
        "n": torch.tensor(7),
        "z": torch.full((3,), 0.5, dtype=torch.float16),
        "none": torch.empty(0, 4),
    }


def shard(tensors: dict[str, torch.Tensor], file: str = "stage-000.safetensors") -> Shard:
    return Shard(file, "parameters", 0, tensors, {"format": "pt"})


class SlowDisk:
    """Stands still at one of its writes until it is let go on."""

    def __init__(self, stops_at: int) -> None:
        self._stops_at = stops_at
        self._num_writes = 0
        self.stands = threading.Event()
        self.goes_on = threading.Event()

    def install(self, monkeypatch: pytest.MonkeyPatch) -> None:
        opens = Path.open

        def open_slowly(path: Path, *arguments: Any) -> Any:
            file = opens(path, *arguments)
            write = file.write

            def write_slowly(content: Any) -> Any:
                self._num_writes += 1
                if self._num_writes == self._stops_at:
                    self.stands.set()
                    assert self.goes_on.wait(20)
                return write(content)

            return WithWrite(file, write_slowly)

        monkeypatch.setattr(Path, "open", open_slowly)


class WithWrite:
    def __init__(self, file: Any, write: Callable[[Any], Any]) -> None:
        self._file = file
        self.write = write

    def __getattr__(self, name: str) -> Any:
        return getattr(self._file, name)

    def __enter__(self) -> "WithWrite":
        return self

    def __exit__(self, *_: object) -> None:
        self._file.close()


@pytest.fixture
def told() -> list[Saved]:
    return []


@pytest.fixture
def saving() -> Iterator[Saving]:
    saving = Saving()
    yield saving
    saving.finish()


def test_saving_writes_what_the_library_writes(saving: Saving, told: list[Saved], tmp_path: Path) -> None:
    tensors = trained()
    whole = {name: tensor.contiguous() for name, tensor in tensors.items()}
    saving.begin(tmp_path / "step-1", [shard(tensors)], told=told.append)
    saving.finish()
    assert (tmp_path / "step-1/stage-000.safetensors").read_bytes() == save(whole, metadata={"format": "pt"})
    assert told[0].error == ""


@pytest.mark.parametrize("stops_at", range(1, NUM_WRITES + 1))
def test_saving_an_update_neither_waits_for_a_disk_that_stands_still_nor_shows_in_what_is_saved(
    stops_at: int, *, saving: Saving, told: list[Saved], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    tensors = trained()
    before = {name: tensor.clone() for name, tensor in tensors.items()}
    disk = SlowDisk(stops_at)
    disk.install(monkeypatch)
    saving.begin(tmp_path, [shard(tensors)], told=told.append)
    assert disk.stands.wait(20)
    for _ in range(2):  # updates
        saving.before_update()
        for tensor in tensors.values():
            tensor.add_(1)
    assert not told
    disk.goes_on.set()
    saving.finish()
    assert told[0].copy_seconds > 0
    found = load_file(tmp_path / "stage-000.safetensors")
    assert found.keys() == before.keys()
    assert all(torch.equal(found[name], tensor) for name, tensor in before.items())


def test_saving_copies_what_is_left_once_however_many_updates_come(
    saving: Saving, told: list[Saved], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    disk = SlowDisk(1)
    disk.install(monkeypatch)
    saving.begin(tmp_path, [shard(trained())], told=told.append)
    assert disk.stands.wait(20)
    assert saving.needs_copies
    saving.before_update()
    assert not saving.needs_copies
    disk.goes_on.set()


def test_saving_copies_nothing_once_all_is_written(saving: Saving, told: list[Saved], tmp_path: Path) -> None:
    assert not saving.needs_copies
    saving.begin(tmp_path, [shard(trained())], told=told.append)
    saving.finish()
    assert not saving.needs_copies
    saving.before_update()
    assert told[0].copy_seconds == 0


def test_saving_of_two_checkpoints_writes_one_after_the_other(
    saving: Saving, told: list[Saved], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    disk = SlowDisk(2)
    disk.install(monkeypatch)
    saving.begin(tmp_path / "step-1", [shard(trained())], told=told.append)
    assert disk.stands.wait(20)
    second = threading.Thread(
        target=saving.begin, args=(tmp_path / "step-2", [shard(trained())]), kwargs={"told": told.append}
    )
    second.start()
    second.join(0.2)
    assert second.is_alive()
    assert not (tmp_path / "step-2").exists()
    disk.goes_on.set()
    second.join(20)
    saving.finish()
    assert [one.error for one in told] == ["", ""]
    assert (tmp_path / "step-2/stage-000.safetensors").is_file()


def test_saving_that_fails_is_told_and_the_next_one_is_done(saving: Saving, told: list[Saved], tmp_path: Path) -> None:
    (tmp_path / "step-1").write_text("no folder")
    for step in (1, 2):
        saving.begin(tmp_path / f"step-{step}", [shard(trained())], told=told.append)
    saving.finish()
    assert told[0].error == f"{tmp_path}/step-1: File exists"
    assert told[0].shards == ()
    assert (told[1].error, len(told[1].shards)) == ("", 1)
