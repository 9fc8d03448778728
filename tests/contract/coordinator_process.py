"""A coordinator as a process of its own."""

import asyncio
import os
import signal
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path

from coordinator_rig import CALL_SECONDS, spec_json
from takt.rpc.client import aio_channel
from takt.rpc.lifecycle import Announcement, parse_announcement
from takt.v1 import jobs_pb2, jobs_pb2_grpc

READY_SECONDS = 20


@dataclass
class Process:
    """A coordinator that serves."""

    child: asyncio.subprocess.Process
    at: Announcement

    @property
    def address(self) -> str:
        """Where it listens."""
        assert self.at.address is not None
        return self.at.address

    async def submit(self, job: str) -> jobs_pb2.Job:
        """Submit a job of that id."""
        async with aio_channel(self.address) as channel:
            request = jobs_pb2.SubmitJobRequest(id=job, spec_json=spec_json())
            return (await jobs_pb2_grpc.JobServiceStub(channel).SubmitJob(request, timeout=CALL_SECONDS)).job

    async def job(self, job: str) -> jobs_pb2.Job:
        """Look at a job."""
        async with aio_channel(self.address) as channel:
            request = jobs_pb2.GetJobRequest(id=job)
            return (await jobs_pb2_grpc.JobServiceStub(channel).GetJob(request, timeout=CALL_SECONDS)).job

    async def end(self, number: signal.Signals = signal.SIGTERM) -> int:
        """Send a signal; return the exit code that follows."""
        self.child.send_signal(number)
        return await asyncio.wait_for(self.child.wait(), 10)


async def spawn(state_dir: Path, *flags: str, listen: str = "127.0.0.1:0") -> asyncio.subprocess.Process:
    """Start one with pipes on all of its streams."""
    pipe = asyncio.subprocess.PIPE
    options = ("--listen", listen, "--metrics-port", "0", "--state-dir", str(state_dir), *flags)
    return await asyncio.create_subprocess_exec(
        sys.executable, "-m", "coordinator", *options, stdin=pipe, stdout=pipe, stderr=pipe, env=dict(os.environ)
    )


@asynccontextmanager
async def coordinator(state_dir: Path, *flags: str) -> AsyncIterator[Process]:
    """Run one that serves; kill it where it has not ended."""
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
