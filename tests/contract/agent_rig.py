"""A coordinator that a test speaks for, and agents whose executors are stand-ins."""

import asyncio
import contextlib
import json
import sys
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any

from takt.rpc.server import RunningServer, serve
from takt.v1 import workers_pb2 as pb
from takt.v1 import workers_pb2_grpc as pb_grpc

from stage_worker.agent import Agent
from stage_worker.config import AgentConfig

FAKE = (sys.executable, str(Path(__file__).with_name("fake_executor.py")))
SERVICE = "takt.v1.WorkerService"


class Attendance:
    """One stream of an agent, as the coordinator sees it."""

    def __init__(self) -> None:
        self.heard: asyncio.Queue[pb.AttendRequest] = asyncio.Queue()
        self.say: asyncio.Queue[pb.AttendResponse | None] = asyncio.Queue()

    async def hear(self, kind: str) -> Any:
        """Return the next message of a kind; drop others."""
        while True:
            message = await asyncio.wait_for(self.heard.get(), 20)
            if message.WhichOneof("message") == kind:
                return getattr(message, kind)

    def assign(self, job: str, *, attempt: int = 1, pretrained: str | None = None, **limits: float) -> None:
        spec = {
            "model": {"pretrained": pretrained},
            "checkpoint": {"from": None},
            "parallel": {"pp": 2},
            "limits": {"lease_seconds": 10, "step_timeout_seconds": 300, **limits},
        }
        self.say.put_nowait(
            pb.AttendResponse(
                assign=pb.Assignment(
                    job=job, attempt=attempt, worker=3, spec_json=json.dumps(spec), stages=[pb.StageSlice(stage=1)]
                )
            )
        )

    def release(self, job: str, *, attempt: int = 1, grace_seconds: float = 0.0) -> None:
        self.say.put_nowait(
            pb.AttendResponse(release=pb.Release(job=job, attempt=attempt, grace_seconds=grace_seconds))
        )

    def hang_up(self) -> None:
        self.say.put_nowait(None)


class Coordinator(pb_grpc.WorkerServiceServicer):
    """Welcomes agents and lets a test talk to them."""

    def __init__(self) -> None:
        self.streams: asyncio.Queue[Attendance] = asyncio.Queue()

    async def next_agent(self) -> Attendance:
        return await asyncio.wait_for(self.streams.get(), 20)

    async def Attend(  # noqa: N802  gRPC's name
        self, request_iterator: AsyncIterator[pb.AttendRequest], context: Any
    ) -> AsyncIterator[pb.AttendResponse]:
        attendance = Attendance()

        async def listen() -> None:
            async for message in request_iterator:
                attendance.heard.put_nowait(message)
                if message.HasField("leaving"):
                    attendance.hang_up()

        listener = asyncio.create_task(listen())
        self.streams.put_nowait(attendance)
        yield pb.AttendResponse(welcome=pb.AgentWelcome(lease_seconds=10))
        while (message := await attendance.say.get()) is not None:
            yield message
        listener.cancel()


async def start(coordinator: Coordinator, listen: str = "127.0.0.1:0") -> RunningServer:
    return await serve(
        listen,
        add=lambda server: pb_grpc.add_WorkerServiceServicer_to_server(coordinator, server),
        services=[SERVICE],
        status={},
    )


def config(address: str, state_dir: Path, **changes: Any) -> AgentConfig:
    settings: dict[str, Any] = {
        "coordinator": address,
        "state_dir": state_dir,
        "slot": 0,
        "advertise": "127.0.0.1",
        "device": "cpu",
        "transport": "auto",
        "metrics_port": 0,
        "standby": False,
        "wait_seconds": 20.0,
        "orphan_seconds": 20.0,
    }
    return AgentConfig(**{**settings, **changes})


@contextlib.asynccontextmanager
async def attended(state_dir: Path, **changes: Any) -> AsyncIterator[tuple[Agent, Coordinator]]:
    """Let an agent run for the block, and a coordinator for it."""
    coordinator = Coordinator()
    server = await start(coordinator)
    agent = Agent(config(server.address, state_dir, **changes), metrics_address="127.0.0.1:1", command=FAKE)
    try:
        async with running(agent):
            yield agent, coordinator
    finally:
        await server.stop(0)


@contextlib.asynccontextmanager
async def running(agent: Agent) -> AsyncIterator[asyncio.Task[None]]:
    """Let an agent run for the block."""
    task = asyncio.create_task(agent.run())
    try:
        yield task
    finally:
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)


def is_alive(pid: int) -> bool:
    try:
        state = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    except OSError:
        return False
    return state != "Z"


async def until(condition: Callable[[], bool]) -> None:
    async with asyncio.timeout(20):
        while not condition():  # noqa: ASYNC110  it is about other processes
            await asyncio.sleep(0.02)
