"""An agent whose coordinator goes away, or that is told to go away itself."""

import asyncio
import os
import signal
from pathlib import Path

import pytest
from agent_rig import FAKE, Attendance, Coordinator, attended, config, is_alive, running, start, until
from takt.rpc.errors import UnreachableError
from takt.v1 import workers_pb2 as pb

from stage_worker.agent import Agent

pytestmark = pytest.mark.timeout(60)


async def begin(coordinator: Coordinator) -> tuple[Attendance, int]:
    """Give the agent work that does not end; return the stream and the executor."""
    attendance = await coordinator.next_agent()
    attendance.assign("waits")
    return attendance, (await attendance.hear("started")).pid


async def test_agent_lost_stream_keeps_the_executor_and_the_next_hello_says_so(tmp_path: Path) -> None:
    async with attended(tmp_path) as (_, coordinator):
        attendance = await coordinator.next_agent()
        first = await attendance.hear("hello")
        assert not first.HasField("work")
        assert not first.HasField("last_end")
        attendance.assign("waits")
        pid = (await attendance.hear("started")).pid
        attendance.hang_up()
        again = await coordinator.next_agent()
        hello = await again.hear("hello")
        assert hello.agent == first.agent
        assert hello.work == pb.AgentWork(job="waits", attempt=1, worker=3, pid=pid, log="logs/worker-3.log")
        assert is_alive(pid)
        again.assign("waits")  # by a coordinator that cannot know whether it came
        again.release("waits")
        ended = await again.hear("ended")
        assert (ended.job, ended.cause) == ("waits", pb.END_CAUSE_RELEASED)


async def test_agent_end_without_a_coordinator_is_told_in_the_next_hello(tmp_path: Path) -> None:
    coordinator = Coordinator()
    server = await start(coordinator)
    address = server.address
    agent = Agent(config(address, tmp_path), metrics_address="127.0.0.1:1", command=FAKE)
    async with running(agent):
        _, pid = await begin(coordinator)
        log = tmp_path / "jobs" / "waits" / "logs" / "worker-3.log"
        await until(lambda: "works for waits" in log.read_text())
        await server.stop(0)
        os.kill(pid, signal.SIGTERM)
        await until(lambda: not is_alive(pid))
        server = await start(coordinator, address)
        again = await coordinator.next_agent()
        hello = await again.hear("hello")
        assert not hello.HasField("work")
        end = hello.last_end
        assert (end.job, end.attempt, end.cause, end.signal) == ("waits", 1, pb.END_CAUSE_SIGNALLED, signal.SIGTERM)
        assert "works for waits" in end.log_tail
        again.assign("exits-7")
        assert (await again.hear("ended")).exit_code == 7
        await server.stop(0)


async def test_agent_without_a_coordinator_kills_its_executor_at_the_orphan_limit_and_not_before(
    tmp_path: Path,
) -> None:
    coordinator = Coordinator()
    server = await start(coordinator)
    settings = config(server.address, tmp_path, orphan_seconds=2.0, wait_seconds=0.5)
    agent = Agent(settings, metrics_address="127.0.0.1:1", command=FAKE)
    async with running(agent) as task:
        _, pid = await begin(coordinator)
        lost_at = asyncio.get_running_loop().time()
        await server.stop(0)
        await until(lambda: not is_alive(pid))
        assert asyncio.get_running_loop().time() - lost_at >= 2.0
        with pytest.raises(UnreachableError):  # nothing is left to wait for
            await asyncio.wait_for(task, 20)


async def test_agent_told_to_stop_lets_the_coordinator_end_the_executor(tmp_path: Path) -> None:
    async with attended(tmp_path) as (agent, coordinator):
        attendance, pid = await begin(coordinator)
        stop = asyncio.create_task(agent.stop("SIGTERM was received"))
        await attendance.hear("stopping")
        assert is_alive(pid)
        os.kill(pid, signal.SIGTERM)  # stands for an executor that obeys STOP
        ended = await attendance.hear("ended")
        assert (ended.cause, ended.signal) == (pb.END_CAUSE_SIGNALLED, signal.SIGTERM)  # the agent did not end it
        await attendance.hear("leaving")
        await asyncio.wait_for(stop, 10)


async def test_agent_told_to_stop_twice_ends_its_executor_itself_and_says_so(tmp_path: Path) -> None:
    async with attended(tmp_path) as (agent, coordinator):
        attendance, pid = await begin(coordinator)
        stop = asyncio.create_task(agent.stop("SIGTERM was received"))
        await attendance.hear("stopping")
        agent.hurry()
        await asyncio.wait_for(stop, 10)
        assert not is_alive(pid)
        ended = await attendance.hear("ended")
        assert ended.cause == pb.END_CAUSE_RELEASED
        assert "SIGTERM was received" in ended.message
        await attendance.hear("leaving")


async def test_agent_told_to_stop_waits_for_no_coordinator_that_is_lost_meanwhile(tmp_path: Path) -> None:
    async with attended(tmp_path) as (agent, coordinator):
        attendance, pid = await begin(coordinator)
        stop = asyncio.create_task(agent.stop("SIGTERM was received"))
        await attendance.hear("stopping")
        attendance.hang_up()
        await asyncio.wait_for(stop, 10)
        assert not is_alive(pid)
