"""Data services that are killed while they serve and while they write, and readers that see nothing of it."""

import os
import shutil
import signal
import threading
import time
from collections.abc import Collection, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

import grpc
import pytest
import torch
from takt.rpc.client import channel

from dataloader_svc.token_folder import UNFINISHED
from stage_worker.batches import DataServiceSource
from stage_worker.engine.commands import Phase, Shape, StepSetting
from stage_worker.models.microbatch import Microbatch
from tests.contract.data.test_data_process import read_bytes, running
from tests.data_calls import WORDS, Service, add_job, describe, read, sst2
from tests.data_jobs import minilm, write_sst2

NUM_STEPS = 60
"""Of the 63 of an epoch."""
Taken = tuple[tuple[object, ...], ...]
"""The rows of a step, by microbatch."""
STALL_SECONDS = 5.0
RESTART_SECONDS = 0.5
"""What passes until a service is started again."""

# Imported by a service as it starts: it dies as if it were killed, at the place that the environment names.
DIES = """
import os
from pathlib import Path

def die_half_way(path, content):
    with path.open("wb") as file:
        file.write(content[: len(content) // 2])
    os.abort()

def die(*_):
    os.abort()

if os.environ["DIES"] == "half written":
    Path.write_bytes = die_half_way
else:
    Path.replace = die
"""


@contextmanager
def source(address: str) -> Iterator[DataServiceSource]:
    with channel(address) as opened:
        columns = ["input_ids", "attention_mask", "labels"]
        batches = DataServiceSource(opened, address=address, job="job", dp_rank=1, columns=columns)
        yield batches
        batches.close()


def taken(batch: Microbatch) -> tuple[object, ...]:
    """Return what can be compared, for equality to the bit."""
    columns = (batch.input_ids_BL, batch.attention_mask_BL, batch.labels)
    return batch.row_ids, *(column.numpy().tobytes() for column in columns if isinstance(column, torch.Tensor))


async def settings_of(service: Service) -> list[StepSetting]:
    async with service() as stub:
        steps = await describe(stub, "job", 1, NUM_STEPS)
    return [
        StepSetting(
            phase=Phase.TRAIN,
            split="train",
            step=step.step,
            denominator=step.denominator,
            microbatches=tuple(Shape(shape.rows, shape.width) for shape in step.replicas[1].microbatches),
        )
        for step in steps
    ]


class Keeper:
    """Keeps a service running at one address, as `takt up` does."""

    def __init__(self, state: Path) -> None:
        self._state = state
        self._stack = ExitStack()
        self._options: tuple[str, ...] = ()
        self._start()
        self._restart = threading.Thread()

    def _start(self) -> None:
        self.process, announced = self._stack.enter_context(running(self._state, *self._options))
        self.address = announced.address or ""
        self._options = ("--listen", self.address)

    def _start_later(self) -> None:
        self.process.wait()
        time.sleep(RESTART_SECONDS)
        self._start()

    def kill(self) -> None:
        """Kill the service; it is started again while the caller goes on."""
        self.process.kill()
        self._restart = threading.Thread(target=self._start_later)
        self._restart.start()

    def close(self) -> None:
        """End it."""
        if self._restart.ident is not None:
            self._restart.join()
        self._stack.close()


def take_all(keeper: Keeper, steps: list[StepSetting], *, kill_after: Collection[int]) -> tuple[list[Taken], float]:
    """Return all rows of all steps, and the longest wait for one."""
    found, longest = [], 0.0
    with source(keeper.address) as batches:
        for setting in steps:
            began = time.monotonic()
            found.append(tuple(taken(batches.get(setting, m)) for m in range(len(setting.microbatches))))
            longest = max(longest, time.monotonic() - began)
            batches.release(setting)
            if setting.step in kill_after:
                keeper.kill()  # while the next steps are read
    return found, longest


async def test_service_killed_while_it_serves_changes_no_byte_and_costs_at_most_5_seconds(
    service: Service, state: Path
) -> None:
    add_job(state, "job", {"parallel.dp": 2, "data.microbatching": "length_balanced"})
    steps = await settings_of(service)
    keeper = Keeper(state)
    try:
        whole, _ = take_all(keeper, steps, kill_after=())
        killed, stall_seconds = take_all(keeper, steps, kill_after=(17,))
    finally:
        keeper.close()

    assert killed == whole
    assert len(set(whole)) == NUM_STEPS
    assert RESTART_SECONDS < stall_seconds < STALL_SECONDS


async def test_service_killed_while_it_keeps_tokens_serves_the_same_bytes_afterwards(
    service: Service, state: Path, tmp_path: Path
) -> None:
    write_sst2(tmp_path, [(" ".join(WORDS[: 1 + row % 10]), row % 2) for row in range(100)])
    add_job(state, "job", sst2(tmp_path, data__tokenizer=str(minilm())))
    dies = tmp_path / "dies"
    dies.mkdir()
    (dies / "sitecustomize.py").write_text(DIES)
    for place in ("half written", "written"):
        path = os.pathsep.join(filter(None, (str(dies), os.environ.get("PYTHONPATH"))))
        with running(state, env={"DIES": place, "PYTHONPATH": path}) as (process, announced):
            with pytest.raises(grpc.RpcError):
                read_bytes(announced.address, "job", 1)
            assert process.wait(timeout=10) == -signal.SIGABRT
    assert {file.suffix for file in (state / "cache" / "tokens").iterdir()} == {UNFINISHED}

    logs = []
    for _ in range(2):
        with running(state) as (process, announced):
            served = read_bytes(announced.address, "job", 1)
            process.kill()
            assert process.stderr is not None
            logs.append(process.stderr.read())
    shutil.rmtree(state / "cache")
    async with service() as stub:
        columns = ["input_ids", "attention_mask", "labels"]
        expected = await read(stub, "job", 1, columns=columns)
    assert served == [each.SerializeToString(deterministic=True) for each in expected]
    assert ["kept=True" in log for log in logs] == [False, True]
