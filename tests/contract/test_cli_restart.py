"""Commands that wait, over restarts of the coordinator on one address."""

import asyncio
import signal
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, closing
from dataclasses import dataclass
from pathlib import Path

import pytest
from coordinator_process import Process, coordinator
from coordinator_rig import CALL_SECONDS, spec_json
from takt.rpc.client import aio_channel
from takt.v1 import jobs_pb2, jobs_pb2_grpc

from coordinator.files import JobFiles
from coordinator.records import JobRecord, JobState, StateChange, WorkerRecord
from coordinator.spec import digest, from_json
from coordinator.store import Store

LINE_SECONDS = 15
_PROGRAM = "import sys; from coordinator.cli.app import main; sys.exit(main())"


def leave_job(state_dir: Path) -> Path:
    """Leave a job of two workers whose coordinator died; return the folder of its logs."""
    text = spec_json()
    record = JobRecord(
        id="left", name="tiny", spec_json=text, digest=digest(from_json(text)), owner="dead", num_slots=2,
        state=JobState.QUEUED, reason="submitted", created=1.0,
    )  # fmt: skip
    with closing(Store.open(state_dir, owner="dead")) as store:
        store.add_job(record)
        store.set_workers(
            "left", [WorkerRecord(worker=w, stages=(w,), dp_rank=0, host="h", state="running") for w in (0, 1)]
        )
        store.change_state(
            "left", StateChange(state=JobState.RUNNING, reason="workers are ready", attempt=1, step=0, time=2.0)
        )
    files = JobFiles.of(state_dir, "left")
    files.create(text)
    return files.folder / "logs"


@dataclass
class Command:
    """A command of the program that runs beside the test."""

    child: asyncio.subprocess.Process

    async def read(self, count: int) -> list[str]:
        """Return its next lines; fewer where it has ended."""
        assert self.child.stdout is not None
        return [(await asyncio.wait_for(self.child.stdout.readline(), LINE_SECONDS)).decode() for _ in range(count)]

    async def end(self) -> tuple[int | None, str]:
        """Return its exit code, and what else it said on stdout."""
        out, _ = await asyncio.wait_for(self.child.communicate(), LINE_SECONDS)
        return self.child.returncode, out.decode()


@asynccontextmanager
async def takt(*argv: str, address: str) -> AsyncIterator[Command]:
    pipe = asyncio.subprocess.PIPE
    child = await asyncio.create_subprocess_exec(
        sys.executable, "-uc", _PROGRAM, *argv, "--coordinator", address, stdout=pipe, stderr=pipe
    )
    try:
        yield Command(child)
    finally:
        if child.returncode is None:
            child.kill()
            await child.communicate()


def say(logs: Path, worker: int, *lines: str) -> None:
    with (logs / f"worker-{worker}.log").open("a") as file:
        file.writelines(f"{line}\n" for line in lines)


async def cancel(process: Process, job: str) -> None:
    async with aio_channel(process.address) as channel:
        request = jobs_pb2.CancelJobRequest(id=job)
        await jobs_pb2_grpc.JobServiceStub(channel).CancelJob(request, timeout=CALL_SECONDS)


@pytest.mark.timeout(90)
@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGTERM])
async def test_logs_wait_and_submit_go_on_over_a_restart_without_a_lost_or_doubled_line(
    tmp_path: Path, number: signal.Signals
) -> None:
    logs = leave_job(tmp_path)
    job_file = tmp_path / "job.yaml"
    job_file.write_text("name: demo\nmodel: {config: {model_type: bert}}\ndata: {task: demo}\n")
    say(logs, 0, "old 0", "old 1")
    async with coordinator(tmp_path) as first:
        address = first.address
        async with (
            takt("logs", "left", "--follow", address=address) as follow,
            takt("wait", "left", address=address) as wait,
            takt("submit", str(job_file), "--id", "new", "--wait", address=address) as submit,
        ):
            assert await submit.read(1) == ["new\n"]
            assert await follow.read(2) == ["worker 0 | old 0\n", "worker 0 | old 1\n"]
            say(logs, 0, "before")
            assert await follow.read(1) == ["worker 0 | before\n"]
            await first.end(number)
            say(logs, 0, "in between")
            say(logs, 1, "first of 1", "")
            async with coordinator(tmp_path, "--listen", address) as second:
                assert second.address == address
                assert await follow.read(3) == [
                    "worker 0 | in between\n",
                    "worker 1 | first of 1\n",
                    "worker 1 | \n",
                ]
                say(logs, 1, "after")
                await cancel(second, "left")
                assert await follow.end() == (0, "worker 1 | after\n")
                code, rest = await wait.end()
                assert (code, rest.startswith("job left CANCELLED")) == (7, True)
                await cancel(second, "new")
                assert await submit.end() == (7, "")
