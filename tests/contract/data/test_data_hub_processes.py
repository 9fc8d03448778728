"""Jobs whose data come from the Hub, in processes of their own, and through the service."""

import json
import os
import subprocess
import sys
import time
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import datasets
import pytest
from takt.v1 import data_pb2 as pb

from tests.data_calls import Service, add_job, describe, read
from tests.data_jobs import CHECKOUT, minilm, spec_json, write_sst2
from tests.hub_folders import prepare, write_sst2_hub
from tests.hub_server import COMMIT, hub_server

HUB = {"data.task": "sst2", "data.source": "hub", "data.tokenizer": str(minilm())}
OFFLINE = ("HF_HUB_OFFLINE", "HF_DATASETS_OFFLINE")
# What Python's audit events tell of every way out of the process, and of every new one.
WATCHED = """
import json, sys
seen = []
watched = ("socket.connect", "socket.getaddrinfo", "os.fork", "os.posix_spawn", "os.exec", "subprocess.Popen")
sys.addaudithook(lambda event, _: seen.append(event) if event in watched else None)
sys.argv[1:] = ["facts", "-"]
from dataloader_svc.app import main
try:
    code = main()
except SystemExit as ended:
    code = ended.code
imported = [name for name in ("datasets", "torch", "transformers") if name in sys.modules]
print(json.dumps({"seen": seen, "imported": imported}), file=sys.stderr)
sys.exit(code)
"""


@dataclass(frozen=True)
class Facts:
    """How a facts program ended."""

    code: int
    out: str
    err: str
    seconds: float

    @property
    def rows(self) -> dict[str, int]:
        """Rows by split."""
        return {split["name"]: split["rows"] for split in json.loads(self.out)["splits"]}


class FactsProgram:
    """A facts program with a home of the Hub's libraries."""

    def __init__(
        self, home: Path, changes: Mapping[str, Any], *, env: Mapping[str, str] | None = None, watched: bool = False
    ) -> None:
        clean = {name: value for name, value in os.environ.items() if not name.startswith("HF_")}
        self._began = time.monotonic()
        self._spec = spec_json(changes)
        self._process = subprocess.Popen(
            [sys.executable, *(["-c", WATCHED] if watched else ["-m", "dataloader_svc", "facts", "-"])],
            env={**clean, "HF_HOME": str(home), **(env or {})},
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            cwd=CHECKOUT,
        )

    def end(self) -> Facts:
        """Give it the spec and wait for its end."""
        try:
            out, err = self._process.communicate(self._spec, timeout=50)
        finally:
            self._process.kill()
            self._process.wait()
        return Facts(self._process.returncode, out, err, time.monotonic() - self._began)


@pytest.fixture
def home(tmp_path: Path) -> Path:
    """Return the home folder of the Hub's libraries, in which SST-2 is prepared."""
    prepare(write_sst2_hub(tmp_path / "glue"), "sst2", tmp_path / "home" / "datasets")
    return tmp_path / "home"


@pytest.mark.timeout(120)
def test_two_processes_at_once_download_once_and_the_next_asks_nobody(tmp_path: Path) -> None:
    with hub_server(write_sst2_hub(tmp_path / "glue")) as server:
        programs = [FactsProgram(tmp_path / "home", HUB, env={"HF_ENDPOINT": server.address}) for _ in range(2)]
        ended = [program.end() for program in programs]
        asked = len(server.asked)
        later = FactsProgram(tmp_path / "home", HUB, env={"HF_ENDPOINT": server.address}).end()

        for facts in (*ended, later):
            assert facts.code == 0, facts.err
            assert facts.rows == {"train": 12, "validation": 5, "test": 3}
        for split in ("train", "validation", "test"):
            assert server.downloads(f"{split}-00000-of-00001.parquet") == 1
        assert len(server.asked) == asked
    assert (tmp_path / "home/datasets/nyu-mll___glue/sst2/0.0.0" / COMMIT / "glue-train.arrow").is_file()


@pytest.mark.timeout(120)
@pytest.mark.parametrize("env", [{}, *({name: "1"} for name in OFFLINE)], ids=["online", *OFFLINE])
def test_prepared_data_need_no_connection_no_process_and_no_torch(home: Path, env: Mapping[str, str]) -> None:
    facts = FactsProgram(home, HUB, env=env, watched=True).end()

    assert facts.code == 0, facts.err
    assert facts.rows == {"train": 12, "validation": 5, "test": 3}
    assert json.loads(facts.err.splitlines()[-1]) == {"seen": [], "imported": ["datasets"]}


def test_h13_a_glue_folder_offline_needs_no_connection_and_not_the_library(tmp_path: Path) -> None:
    write_sst2(tmp_path, [("never dull", 1), ("dull", 0)] * 5)

    facts = FactsProgram(
        tmp_path, HUB | {"data.source": str(tmp_path)}, env={"HF_HUB_OFFLINE": "1"}, watched=True
    ).end()

    assert facts.code == 0, facts.err
    assert facts.rows == {"train": 10}
    assert json.loads(facts.err.splitlines()[-1]) == {"seen": [], "imported": []}


@pytest.mark.parametrize("name", OFFLINE)
def test_h13_b_nothing_prepared_offline_is_refused_in_time_by_task_and_folder(tmp_path: Path, name: str) -> None:
    cache = tmp_path / "home" / "datasets"

    facts = FactsProgram(tmp_path / "home", HUB, env={name: "1"}, watched=True).end()

    assert (facts.code, facts.out) == (2, "")
    told, watched = facts.err.splitlines()
    assert told == (
        f"error: task sst2: data.source is hub, but the data set nyu-mll/glue is not in {cache}/nyu-mll___glue/sst2, "
        "and HF_HUB_OFFLINE or HF_DATASETS_OFFLINE forbids to download it; give data.source a "
        "folder in the official GLUE layout, which holds SST-2/train.tsv, or run it once where the Hub can be reached"
    )
    assert json.loads(watched)["seen"] == []
    assert facts.seconds < 30


def test_nothing_prepared_and_nobody_at_the_hub_s_address_is_refused_in_time(tmp_path: Path) -> None:
    with hub_server(tmp_path) as server:
        address = server.address

    facts = FactsProgram(tmp_path / "home", HUB, env={"HF_ENDPOINT": address}).end()

    assert facts.code == 2
    assert f"nyu-mll___glue/sst2, and {address} does not give it: ConnectError: " in facts.err
    assert facts.err.splitlines()[-1].startswith("error: task sst2: ")
    assert facts.seconds < 30


def test_data_set_that_lacks_the_task_is_refused_with_what_the_library_says(tmp_path: Path) -> None:
    with hub_server(write_sst2_hub(tmp_path / "glue")) as server:
        facts = FactsProgram(tmp_path / "home", HUB | {"data.task": "rte"}, env={"HF_ENDPOINT": server.address}).end()

    assert facts.code == 2
    told = facts.err.splitlines()[-1]
    assert told.startswith("error: task rte: ")
    assert "it could not be loaded: ValueError: BuilderConfig 'rte' not found. Available: ['sst2']" in told


async def test_service_reads_prepared_rows_although_no_folder_is_allowed(
    service: Service, state: Path, rows: Path, home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(datasets.config, "HF_DATASETS_CACHE", home / "datasets")
    changes = HUB | {"data.tokenizer": str(rows), "data.shuffle": False, "train.global_batch_size": 8}
    add_job(state, "job", changes | {"schedule.num_microbatches": 1})

    async with service(roots=[rows]) as stub:  # the tokenizer's alone
        (shape,) = await describe(stub, "job", 2, 1)
        (microbatch,) = await read(stub, "job", 1, columns=["labels"])
        (tested,) = await describe(stub, "job", 1, 1, phase=pb.PHASE_EVALUATE, split="test")

    assert (shape.examples, tested.examples) == (4, 3)  # the end of 12 rows; all of 3
    assert microbatch.columns[0].data == b"".join((row % 2).to_bytes(8, "little") for row in range(8))
