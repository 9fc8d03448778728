"""``takt predict`` at a coordinator: the job that it gives, and what an interrupt leaves; a JobService of its own."""

import hashlib
import json
import os
import signal
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import grpc
import numpy as np
import pytest
from fake_jobs import Jobs
from safetensors.numpy import save_file
from takt.v1 import jobs_pb2 as pb
from takt.v1 import jobs_pb2_grpc as pb_grpc

from coordinator.checkpoints import Checkpoint, ShardFile
from coordinator.cli.app import main
from coordinator.cli.commands.predict import export_model
from coordinator.spec import parse_spec, to_json

pytestmark = pytest.mark.timeout(30)


class Coordinator(Jobs):
    """Interrupts the program that looks at a job, as Ctrl-C does, where that is asked for."""

    interrupts = False
    address = ""
    has_trained = True
    """Whether it is the one that has trained the job ``learner``."""

    def GetJob(self, request: pb.GetJobRequest, context: grpc.ServicerContext) -> pb.GetJobResponse:  # noqa: N802
        if request.id == "learner" and self.has_trained:
            return pb.GetJobResponse(job=pb.Job(id="learner", state=pb.JOB_STATE_SUCCEEDED))
        if self.interrupts:
            os.kill(os.getpid(), signal.SIGINT)
        return super().GetJob(request, context)


@pytest.fixture
def _interruptible() -> Iterator[None]:
    """Let SIGINT interrupt: a shell that starts a program in the background has it ignored."""
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    signal.signal(signal.SIGINT, before)


@pytest.fixture
def jobs() -> Iterator[Coordinator]:
    """Return a coordinator whose jobs fail when they are looked at."""
    coordinator = Coordinator()
    coordinator.end_state = pb.JOB_STATE_FAILED
    coordinator.looks_left = 0
    server = grpc.server(ThreadPoolExecutor(max_workers=2), options=[("grpc.so_reuseport", 0)])
    pb_grpc.add_JobServiceServicer_to_server(coordinator, server)
    coordinator.address = f"127.0.0.1:{server.add_insecure_port('127.0.0.1:0')}"
    server.start()
    yield coordinator
    server.stop(grace=None).wait()


def trained(state_dir: Path, task: str) -> Path:
    """Write what a job named ``learner`` has left behind three steps, and its export; return the export."""
    folder = state_dir / "jobs" / "learner"
    data = {"task": task, "source": "/glue", "tokenizer": "/tokens", "max_length": 77, "malformed_lines": "skip"}
    model = {"config": {"model_type": "bert"}}
    document = {"name": "learner", "model": model, "data": data, "parallel": {"pp": 2}}
    shards = [{"file": f"{s}", "kind": "parameters", "stage": s, "sha256": "", "bytes": 1} for s in range(2)]
    manifest = {"schema": "takt/v1", "job": "learner", "step": 3, "epoch": 0, "num_stages": 2, "shards": shards}
    checkpoint = folder / "checkpoints" / "step-3"
    checkpoint.mkdir(parents=True)
    (checkpoint / "manifest.json").write_text(json.dumps(manifest))
    (folder / "spec.json").write_text(to_json(parse_spec(document)))
    export = state_dir / "exports" / "learner-step-3"
    export.mkdir(parents=True)
    return export


@pytest.mark.parametrize(
    ("task", "split", "expected"),
    [("mnli", "test_matched", "mnli"), ("mnli", "ax", "ax"), ("rte", "test", "rte"), ("rte", "ax", "rte")],
)
def test_predict_gives_the_job_of_the_split_in_the_layout_of_the_trained_one(
    jobs: Coordinator, tmp_path: Path, task: str, split: str, expected: str
) -> None:
    """The diagnostic set is a task of its own, for models of MNLI alone."""
    export = trained(tmp_path, task)
    arguments = ("--split", split, "--id", "guess", "--state-dir", str(tmp_path), "--coordinator", jobs.address)
    assert main(["predict", "learner", *arguments]) == 1, "as the job ends"
    spec = json.loads(jobs.specs["guess"])
    assert (spec["data"]["task"], spec["predict"]["split"]) == (expected, split)
    assert (spec["model"]["pretrained"], spec["model"]["config"]) == (str(export), None)
    assert (spec["data"]["source"], spec["data"]["max_length"], spec["parallel"]["pp"]) == ("/glue", 77, 2)
    assert spec["data"]["malformed_lines"] == "refuse", "else an index would not be the row's in its file"


def test_predict_at_a_coordinator_of_another_state_folder_is_refused_before_a_model_is_written(
    jobs: Coordinator, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    trained(tmp_path, "rte").rmdir()
    jobs.has_trained = False
    assert (
        main(["predict", "learner", *("--split", "test", "--state-dir", str(tmp_path), "--coordinator", jobs.address)])
        == 3
    )
    assert capsys.readouterr().err == (
        f"error: job learner is in {tmp_path}, but the coordinator at {jobs.address} has no such job, so it has "
        "another state folder; name that with --state-dir, or leave --coordinator out\n"
    )
    assert not jobs.specs, "no job was given"
    assert not list((tmp_path / "exports").iterdir())


def test_predict_tells_where_predictions_are_that_it_does_not_find(
    jobs: Coordinator, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """As with a copy of the coordinator's folder."""
    trained(tmp_path, "rte")
    jobs.end_state = pb.JOB_STATE_SUCCEEDED
    arguments = ("--split", "test", "--id", "guess", "--state-dir", str(tmp_path), "--coordinator", jobs.address)
    assert main(["predict", "learner", *arguments]) == 2
    assert capsys.readouterr().err.endswith(
        f"error: job guess left nothing in {tmp_path}; what it predicted is in jobs/guess of its coordinator's own "
        "state folder\n"
    )


@pytest.mark.usefixtures("_interruptible")
def test_predict_that_is_interrupted_says_how_to_go_on_and_leaves_the_job(
    jobs: Coordinator, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    trained(tmp_path, "mnli")
    jobs.interrupts, jobs.looks_left = True, -1
    arguments = ("--split", "ax", "--id", "guess", "--state-dir", str(tmp_path), "--coordinator", jobs.address)
    assert main(["predict", "learner", *arguments]) == 130
    out, err = capsys.readouterr()
    assert out == ""
    assert err == "job guess goes on: takt wait guess waits for its end, takt cancel guess ends it\n"
    assert jobs.jobs["guess"].state == pb.JOB_STATE_QUEUED


def test_model_that_two_predictions_write_at_once_is_there_for_both(tmp_path: Path) -> None:
    """The tokenizer takes each of them half a second, behind the look whether the other one was done."""
    folder = tmp_path / "jobs" / "learner"
    shard = folder / "checkpoints" / "step-3" / "stage-000.safetensors"
    shard.parent.mkdir(parents=True)
    save_file({"classifier.bias": np.ones(2, np.float32)}, shard)
    digest, size = hashlib.sha256(shard.read_bytes()).hexdigest(), shard.stat().st_size
    part = ShardFile(path=shard, kind="parameters", stage=0, sha256=digest, size_bytes=size)
    checkpoint = Checkpoint(folder=shard.parent, step=3, shards=(part,), manifest={})
    demo = {"name": "learner", "model": {"config": {"model_type": "bert"}}, "data": {"task": "demo"}}
    (folder / "spec.json").write_text(to_json(parse_spec(demo)))
    out = tmp_path / "exports" / "learner-step-3"
    with ThreadPoolExecutor(2) as pool:
        both = [pool.submit(export_model, checkpoint, out, spec=folder / "spec.json") for _ in range(2)]
        for each in both:
            each.result(timeout=25)
    assert [path.name for path in out.parent.iterdir()] == ["learner-step-3"]
    assert {path.name for path in out.iterdir()} == {"model.safetensors", "tokenizer.json", "tokenizer_config.json"}
