"""The coordinator as a process: ports, folders, signals, and what a crash leaves."""

import asyncio
import signal
from pathlib import Path

import grpc
import grpc.aio
import pytest
from coordinator_process import coordinator, refused
from takt.rpc.client import aio_channel
from takt.v1 import jobs_pb2, jobs_pb2_grpc


def names_in(folder: Path) -> list[str]:
    return [path.name for path in folder.iterdir()]


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
