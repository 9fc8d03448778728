"""The data service and its programs as processes."""

import json
import os
import signal
import socket
import subprocess
import sys
import urllib.error
import urllib.request
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path

import numpy as np
import pytest
from google.protobuf.json_format import Parse
from takt.rpc.client import channel
from takt.rpc.lifecycle import Announcement, parse_announcement
from takt.v1 import data_pb2 as pb
from takt.v1.data_pb2_grpc import DataServiceStub
from transformers import AutoTokenizer

from tests.data_calls import WORDS, add_job, sst2
from tests.data_jobs import CHECKOUT, minilm, spec_json, write_sst2

PROGRAM = (sys.executable, "-m", "dataloader_svc")
FREE_PORTS = ("--listen", "127.0.0.1:0", "--metrics-port", "0")


def run(*arguments: str, stdin: str = "") -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [*PROGRAM, *arguments], input=stdin, capture_output=True, text=True, timeout=50, check=False, cwd=CHECKOUT
    )


@contextmanager
def running(
    state: Path, *arguments: str, env: dict[str, str] | None = None
) -> Iterator[tuple[subprocess.Popen[str], Announcement]]:
    """Run the service until the block ends; its stdin stays open meanwhile."""
    process = subprocess.Popen(
        [*PROGRAM, *FREE_PORTS, "--state-dir", str(state), "--exit-with-stdin", *arguments],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        cwd=CHECKOUT,
        env={**os.environ, **(env or {})},
    )
    with process:
        try:
            assert process.stdout is not None
            announced = parse_announcement(process.stdout.readline())
            assert announced is not None
            yield process, announced
        finally:
            if process.poll() is None:
                process.kill()


def read_bytes(address: str | None, job: str, step: int) -> list[bytes]:
    assert address is not None
    request = pb.ReadStepRequest(
        job=job, phase=pb.PHASE_TRAIN, split="train", step=step, columns=["input_ids", "attention_mask", "labels"]
    )
    with channel(address) as opened:
        answers = DataServiceStub(opened).ReadStep(request, timeout=20)
        return [each.SerializeToString(deterministic=True) for answer in answers for each in answer.microbatches]


@pytest.fixture
def state(tmp_path: Path) -> Path:
    """Return a state folder with the job ``demo``."""
    path = tmp_path / "jobs" / "demo" / "spec.json"
    path.parent.mkdir(parents=True)
    path.write_text(spec_json())
    return tmp_path


@pytest.mark.parametrize("microbatching", ["in_order", "length_balanced"])
def test_service_killed_and_started_again_serves_the_same_bytes(state: Path, microbatching: str) -> None:
    add_job(state, "job", {"data.microbatching": microbatching})
    with running(state) as (process, announced):
        first = [read_bytes(announced.address, "job", step) for step in (1, 63, 64)]
        process.kill()
    with running(state) as (_, announced):
        again = [read_bytes(announced.address, "job", step) for step in (1, 63, 64)]

    assert first == again
    assert [len(microbatches) for microbatches in first] == [8, 8, 8]
    assert first[0] != first[2]


@pytest.mark.parametrize("microbatching", ["in_order", "length_balanced"])
def test_service_without_kept_tokens_with_them_and_with_damaged_ones_serves_the_same_bytes(
    state: Path, tmp_path: Path, microbatching: str
) -> None:
    lengths = [int(length) for length in np.random.RandomState(7).randint(1, 11, size=200)]
    write_sst2(tmp_path, [(" ".join(WORDS[-length:]), length % 2) for length in lengths])
    add_job(state, "job", sst2(tmp_path, data__tokenizer=str(minilm()), data__microbatching=microbatching))
    served, logs = [], []
    for life in range(4):
        kept = list((state / "cache" / "tokens").glob("*"))
        if life == 2:
            kept[0].write_bytes(kept[0].read_bytes()[:-100])
        with running(state) as (process, announced):
            served.append([read_bytes(announced.address, "job", step) for step in (3, 1, 8)])
            process.kill()
            assert process.stderr is not None
            logs.append(process.stderr.read())

    assert served[0] == served[1] == served[2] == served[3]
    assert [len(microbatches) for microbatches in served[0]] == [8, 8, 8]
    assert ["kept=True" in log for log in logs] == [False, True, False, True]
    assert ["kept tokens cannot be used" in log for log in logs] == [False, False, True, False]
    assert len(kept) == 1


def test_two_services_of_one_state_folder_keep_one_file_and_serve_the_same_bytes(state: Path, tmp_path: Path) -> None:
    write_sst2(tmp_path, [(" ".join(WORDS[: 1 + row % 10]), row % 2) for row in range(100)])
    add_job(state, "job", sst2(tmp_path, data__tokenizer=str(minilm())))
    with (
        running(state) as (_, one),
        running(state) as (_, other),
        ThreadPoolExecutor(2) as readers,
    ):
        first, second = readers.map(lambda service: read_bytes(service.address, "job", 1), (one, other))

    assert first == second
    assert [path.suffix for path in (state / "cache" / "tokens").iterdir()] == [".tokens"]


@pytest.mark.timeout(180)
def test_h90_service_20_starts_in_a_row_tokenise_without_a_hang_or_a_fork(state: Path) -> None:
    for _ in range(20):
        with running(state) as (process, announced):
            assert len(read_bytes(announced.address, "demo", 1)) == 8
            assert process.stdin is not None
            process.stdin.close()
            process.wait(timeout=10)
            assert process.stderr is not None
            assert "forked" not in process.stderr.read()
        assert process.returncode == 0


def test_service_ignores_proxies_of_the_environment(state: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    nowhere = {"http_proxy": "http://127.0.0.1:9", "https_proxy": "http://127.0.0.1:9"}
    for name, value in nowhere.items():
        monkeypatch.setenv(name, value)
    monkeypatch.delenv("no_proxy", raising=False)

    with running(state, env=nowhere) as (_, announced):
        assert len(read_bytes(announced.address, "demo", 1)) == 8


def test_service_tells_probes_and_prometheus_of_itself(state: Path) -> None:
    with running(state) as (_, announced):
        read_bytes(announced.address, "demo", 1)
        pages = {}
        for page in ("livez", "readyz", "metrics"):
            with urllib.request.urlopen(f"http://{announced.metrics_address}/{page}", timeout=5) as answer:
                pages[page] = answer.read().decode()

    assert "serving" in pages["readyz"]
    assert "takt_data_batches_total 8.0" in pages["metrics"]
    assert "takt_data_build_seconds_count 8.0" in pages["metrics"]
    assert 'takt_build_info{version="' in pages["metrics"]
    assert 'takt_rpc_server_handled_total{code="OK",method="takt.v1.DataService/ReadStep"} 1.0' in pages["metrics"]


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_service_signal_stops_it_with_0(state: Path, number: signal.Signals) -> None:
    with running(state) as (process, announced):
        process.send_signal(number)
        assert process.wait(timeout=10) == 0

    with pytest.raises(urllib.error.URLError):
        urllib.request.urlopen(f"http://{announced.metrics_address}/livez", timeout=5)


def test_service_allow_root_refuses_other_folders(state: Path, tmp_path: Path) -> None:
    (state / "jobs" / "demo" / "spec.json").write_text(spec_json({"data.tokenizer": str(minilm())}))

    with running(state, "--allow-root", str(tmp_path)) as (_, announced), channel(announced.address or "") as opened:
        request = pb.DescribeStepsRequest(job="demo", phase=pb.PHASE_TRAIN, split="train", first=1, count=1)
        with pytest.raises(Exception, match="under no --allow-root"):
            DataServiceStub(opened).DescribeSteps(request, timeout=20)


@pytest.mark.parametrize("option", ["--listen", "--metrics-port"])
def test_service_port_in_use_is_named_with_exit_5(state: Path, option: str) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        value = f"127.0.0.1:{port}" if option == "--listen" else str(port)

        result = run(*FREE_PORTS, "--state-dir", str(state), option, value)

    assert result.returncode == 5
    assert "address in use" in result.stderr
    assert str(port) in result.stderr
    assert result.stdout == ""


def test_service_beyond_loopback_needs_insecure(state: Path) -> None:
    result = run("--listen", "0.0.0.0:0", "--state-dir", str(state))

    assert result.returncode == 2
    assert "--insecure" in result.stderr


def test_facts_prints_the_message_as_json(tmp_path: Path) -> None:
    spec = tmp_path / "spec.json"
    spec.write_text(spec_json({"train.max_steps": 7}))

    by_path, by_stdin = run("facts", str(spec)), run("facts", "-", stdin=spec.read_text())

    assert (by_path.returncode, by_path.stderr) == (0, "")
    assert by_path.stdout == by_stdin.stdout
    assert json.loads(by_path.stdout)["pad_token_id"] == 0  # also what is zero is printed
    facts = Parse(by_path.stdout, pb.DataFacts())
    assert [(split.name, split.rows) for split in facts.splits] == [("train", 2000), ("validation", 400), ("test", 200)]
    assert (facts.num_labels, facts.steps_per_epoch, facts.total_steps) == (2, 63, 7)


def test_facts_missing_folder_exits_2_with_one_line(tmp_path: Path) -> None:
    changes = {"data.task": "sst2", "data.source": str(tmp_path), "data.tokenizer": str(minilm())}

    result = run("facts", "-", stdin=spec_json(changes))

    assert (result.returncode, result.stdout) == (2, "")
    assert result.stderr == (
        f"error: task sst2: there is no folder {tmp_path}/SST-2; data.source must hold SST-2/train.tsv\n"
    )


def test_facts_missing_spec_exits_2(tmp_path: Path) -> None:
    result = run("facts", str(tmp_path / "spec.json"))

    assert (result.returncode, result.stdout) == (2, "")
    assert result.stderr.startswith(f"error: the job spec {tmp_path}/spec.json cannot be read")


def test_tokenizer_program_saves_what_auto_tokenizer_loads_beside_a_model(tmp_path: Path) -> None:
    (tmp_path / "config.json").write_text(json.dumps({"model_type": "bert", "vocab_size": 96}))

    result = run("tokenizer", "-", str(tmp_path), stdin=spec_json())

    assert (result.returncode, result.stderr) == (0, "")
    encoded = AutoTokenizer.from_pretrained(str(tmp_path))("the plot was never dull")
    assert encoded["input_ids"][0] == 2  # [CLS]
    assert encoded["input_ids"][-1] == 3  # [SEP]
    assert len(set(encoded["input_ids"])) == 7
    assert 1 not in encoded["input_ids"]  # [UNK]


def test_help_lists_options_with_their_environment_twins() -> None:
    result = run("--help")

    assert result.returncode == 0
    for name in ("LISTEN", "STATE_DIR", "METRICS_PORT", "ALLOW_ROOT", "EXIT_WITH_STDIN", "INSECURE"):
        assert f"--{name.lower().replace('_', '-')}" in result.stdout
        assert f"TAKT_{name}" in result.stdout


def test_environment_twin_gives_the_option(state: Path) -> None:
    result = subprocess.run(
        [*PROGRAM, "--state-dir", str(state)],
        env={**os.environ, "TAKT_LISTEN": "127.0.0.1:99999"},
        capture_output=True,
        text=True,
        timeout=50,
        check=False,
        cwd=CHECKOUT,
    )

    assert result.returncode == 2
    assert "127.0.0.1:99999" in result.stderr
