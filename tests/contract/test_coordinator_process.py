"""The coordinator as a process: ports, folders, signals, and what a crash leaves."""

import asyncio
import os
import signal
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path

import grpc
import grpc.aio
import pytest
from coordinator_rig import CALL_SECONDS, spec_json
from takt.rpc.client import aio_channel
from takt.rpc.lifecycle import Announcement, parse_announcement
from takt.v1 import jobs_pb2, jobs_pb2_grpc

READY_SECONDS = 20


@dataclass
class Process:
    child: asyncio.subprocess.Process
    at: Announcement

    @property
    def address(self) -> str:
        assert self.at.address is not None
        return self.at.address

    async def submit(self, job: str) -> jobs_pb2.Job:
        async with aio_channel(self.address) as channel:
            request = jobs_pb2.SubmitJobRequest(id=job, spec_json=spec_json())
            return (await jobs_pb2_grpc.JobServiceStub(channel).SubmitJob(request, timeout=CALL_SECONDS)).job

    async def job(self, job: str) -> jobs_pb2.Job:
        async with aio_channel(self.address) as channel:
            request = jobs_pb2.GetJobRequest(id=job)
            return (await jobs_pb2_grpc.JobServiceStub(channel).GetJob(request, timeout=CALL_SECONDS)).job

    async def end(self, number: signal.Signals = signal.SIGTERM) -> int:
        self.child.send_signal(number)
        return await asyncio.wait_for(self.child.wait(), 10)


async def spawn(state_dir: Path, *flags: str, listen: str = "127.0.0.1:0") -> asyncio.subprocess.Process:
    pipe = asyncio.subprocess.PIPE
    options = ("--listen", listen, "--metrics-port", "0", "--state-dir", str(state_dir), *flags)
    return await asyncio.create_subprocess_exec(
        sys.executable, "-m", "coordinator", *options, stdin=pipe, stdout=pipe, stderr=pipe, env=dict(os.environ)
    )


@asynccontextmanager
async def coordinator(state_dir: Path, *flags: str) -> AsyncIterator[Process]:
    child = await spawn(state_dir, *flags)
    try:
        assert child.stdout is not None
        line = await asyncio.wait_for(child.stdout.readline(), READY_SECONDS)
        at = parse_announcement(line.decode())
        assert at is not None, line
        yield Process(child, at)
    finally:
        if child.returncode is None:
            child.kill()
        await child.communicate()


def names_in(folder: Path) -> list[str]:
    return [path.name for path in folder.iterdir()]


async def refused(state_dir: Path, *flags: str, listen: str = "127.0.0.1:0") -> tuple[int | None, str]:
    """Return exit code and stderr of a coordinator that must not start."""
    child = await spawn(state_dir, *flags, listen=listen)
    try:
        out, err = await asyncio.wait_for(child.communicate(), READY_SECONDS)
    finally:
        if child.returncode is None:
            child.kill()
    assert out == b""
    return child.returncode, err.decode()


async def test_process_second_on_the_folder_exits_4_naming_the_first(tmp_path: Path) -> None:
    async with coordinator(tmp_path) as first:
        code, text = await refused(tmp_path)
        assert code == 4
        assert f"(pid {first.child.pid}, {first.address})" in text
        assert (await first.submit("job")).state == jobs_pb2.JOB_STATE_QUEUED


async def test_process_second_on_the_port_exits_5_naming_it(tmp_path: Path) -> None:
    async with coordinator(tmp_path / "a") as first:
        code, text = await refused(tmp_path / "b", listen=first.address)
        assert code == 5
        assert f"address in use: another process listens on {first.address}" in text
        assert "Traceback" not in text
        port = first.at.metrics_address.rpartition(":")[2]
        code, text = await refused(tmp_path / "c", "--metrics-port", port)
        assert (code, port in text) == (5, True)


async def test_process_embedded_ones_share_a_folder(tmp_path: Path) -> None:
    async with coordinator(tmp_path) as first, coordinator(tmp_path, "--embedded") as second:
        await second.submit("theirs")
        assert (await first.job("theirs")).state == jobs_pb2.JOB_STATE_QUEUED
        assert await second.end() == 0
        assert (await first.job("theirs")).state == jobs_pb2.JOB_STATE_CANCELLED


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
async def test_process_signal_exits_0_and_frees_the_folder(tmp_path: Path, number: signal.Signals) -> None:
    async with coordinator(tmp_path) as first:
        assert await first.end(number) == 0
    assert names_in(tmp_path / "coordinators") == []
    async with coordinator(tmp_path):
        pass


async def test_process_stdin_closes_exits_0(tmp_path: Path) -> None:
    async with coordinator(tmp_path, "--exit-with-stdin") as first:
        assert first.child.stdin is not None
        first.child.stdin.close()
        assert await asyncio.wait_for(first.child.wait(), 10) == 0


async def test_process_killed_the_next_one_takes_its_jobs_over(tmp_path: Path) -> None:
    async with coordinator(tmp_path) as first:
        await first.submit("waits")
        assert await first.end(signal.SIGKILL) == -9
    (tmp_path / "jobs/waits/spec.json").unlink()
    async with coordinator(tmp_path) as second:
        job = await second.job("waits")
        assert job.state == jobs_pb2.JOB_STATE_QUEUED
        assert "needs 2 slots" in job.reason or "waits for slots" in job.reason
    assert (tmp_path / "jobs/waits/spec.json").is_file()


async def test_process_not_loopback_without_insecure_exits_2(tmp_path: Path) -> None:
    code, text = await refused(tmp_path, listen="0.0.0.0:0")
    assert code == 2
    assert "--insecure" in text


@pytest.mark.parametrize(
    "flags", [("--credit", "0"), ("--metrics-port", "x"), ("--no-such-flag",), ("--data-service", "nowhere")]
)
async def test_process_bad_flag_exits_2(tmp_path: Path, flags: tuple[str, ...]) -> None:
    code, _ = await refused(tmp_path, *flags)
    assert code == 2
    assert names_in(tmp_path) == []


async def test_process_unary_call_without_deadline_is_refused(tmp_path: Path) -> None:
    async with coordinator(tmp_path) as first, aio_channel(first.address) as channel:
        with pytest.raises(grpc.aio.AioRpcError) as refusal:
            await jobs_pb2_grpc.JobServiceStub(channel).ListJobs(jobs_pb2.ListJobsRequest())
        assert refusal.value.code() is grpc.StatusCode.INVALID_ARGUMENT
