"""An agent against a coordinator that follows a script, with executors that only pretend."""

import asyncio
import contextlib
import os
import signal
import socket
import sys
from collections.abc import AsyncIterator, Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest
from agent_rig import FAKE, Coordinator, config, is_alive, start, until
from takt.rpc.errors import UnreachableError
from takt.v1 import workers_pb2 as pb

from stage_worker.agent import Agent

pytestmark = pytest.mark.timeout(60)
StartAgent = Callable[..., Awaitable[Agent]]


@pytest.fixture
async def coordinator() -> AsyncIterator[tuple[Coordinator, str]]:
    servicer = Coordinator()
    server = await start(servicer)
    yield servicer, server.address
    await server.stop(0)


@pytest.fixture
async def start_agent(coordinator: tuple[Coordinator, str], tmp_path: Path) -> AsyncIterator[StartAgent]:
    async with contextlib.AsyncExitStack() as stack:

        async def begin(**changes: Any) -> Agent:
            agent = Agent(config(coordinator[1], tmp_path, **changes), metrics_address="127.0.0.1:1", command=FAKE)
            task = asyncio.create_task(agent.run())

            async def end() -> None:
                task.cancel()
                await asyncio.gather(task, return_exceptions=True)

            stack.push_async_callback(end)
            return agent

        yield begin


async def test_agent_says_who_it_is_and_that_it_lives(
    coordinator: tuple[Coordinator, str], start_agent: StartAgent
) -> None:
    await start_agent(slot=4)
    attendance = await coordinator[0].next_agent()
    hello = await attendance.hear("hello")
    assert (hello.host, hello.slot, hello.device, hello.pid) == ("127.0.0.1", 4, "cpu", os.getpid())
    beat = await attendance.hear("heartbeat")
    assert beat.job == ""
    assert not beat.HasField("idle_seconds")


async def test_agent_executor_that_exits_is_told_with_code_and_log(
    coordinator: tuple[Coordinator, str], start_agent: StartAgent, tmp_path: Path
) -> None:
    await start_agent()
    attendance = await coordinator[0].next_agent()
    attendance.assign("exits-7")
    started = await attendance.hear("started")
    assert (started.job, started.attempt, started.log) == ("exits-7", 1, "logs/worker-3.log")
    ended = await attendance.hear("ended")
    assert (ended.job, ended.attempt) == ("exits-7", 1)
    assert (ended.cause, ended.exit_code) == (pb.END_CAUSE_EXITED, 7)
    assert ended.log_tail == "imports are done\nworks for exits-7"
    log = tmp_path / "jobs" / "exits-7" / "logs" / "worker-3.log"
    assert log.read_text() == "imports are done\nworks for exits-7\n"


async def test_agent_appends_to_the_log_of_an_earlier_attempt(
    coordinator: tuple[Coordinator, str], start_agent: StartAgent
) -> None:
    await start_agent()
    attendance = await coordinator[0].next_agent()
    for attempt in (1, 2):
        attendance.assign("exits-7", attempt=attempt)
        ended = await attendance.hear("ended")
        assert ended.attempt == attempt
    assert ended.log_tail.count("works for exits-7") == 2


async def test_agent_executor_killed_from_outside_is_signalled(
    coordinator: tuple[Coordinator, str], start_agent: StartAgent
) -> None:
    await start_agent()
    attendance = await coordinator[0].next_agent()
    attendance.assign("dies")
    ended = await attendance.hear("ended")
    assert (ended.cause, ended.signal) == (pb.END_CAUSE_SIGNALLED, signal.SIGKILL)
    assert "SIGKILL" in ended.message


async def test_agent_release_ends_the_whole_process_group(
    coordinator: tuple[Coordinator, str], start_agent: StartAgent, tmp_path: Path
) -> None:
    await start_agent()
    attendance = await coordinator[0].next_agent()
    attendance.assign("grandchild")
    pid = (await attendance.hear("started")).pid
    log = tmp_path / "jobs" / "grandchild" / "logs" / "worker-3.log"
    await until(lambda: "grandchild " in log.read_text().replace("works for grandchild", ""))
    grandchild = int(log.read_text().split()[-1])
    assert is_alive(grandchild)
    attendance.release("grandchild")
    ended = await attendance.hear("ended")
    assert ended.cause == pb.END_CAUSE_RELEASED
    assert not is_alive(pid)
    await until(lambda: not is_alive(grandchild))


async def test_agent_executor_without_a_pulse_is_silent(
    coordinator: tuple[Coordinator, str], start_agent: StartAgent
) -> None:
    await start_agent()
    attendance = await coordinator[0].next_agent()
    attendance.assign("silent", lease_seconds=1)
    ended = await attendance.hear("ended")
    assert ended.cause == pb.END_CAUSE_SILENT
    assert "limits.lease_seconds is 1" in ended.message


async def test_agent_stopped_executor_is_silent(coordinator: tuple[Coordinator, str], start_agent: StartAgent) -> None:
    await start_agent()
    attendance = await coordinator[0].next_agent()
    attendance.assign("waits", lease_seconds=1)
    started = await attendance.hear("started")
    while not (await attendance.hear("heartbeat")).HasField("idle_seconds"):
        pass  # it has its work
    os.kill(started.pid, signal.SIGSTOP)
    ended = await attendance.hear("ended")
    assert ended.cause == pb.END_CAUSE_SILENT
    assert not ended.HasField("stage")  # it waited


async def test_agent_executor_that_computes_for_too_long_is_stuck(
    coordinator: tuple[Coordinator, str], start_agent: StartAgent
) -> None:
    await start_agent()
    attendance = await coordinator[0].next_agent()
    attendance.assign("stuck", step_timeout_seconds=1)
    ended = await attendance.hear("ended")
    assert ended.cause == pb.END_CAUSE_STUCK
    assert "limits.step_timeout_seconds is 1" in ended.message
    assert (ended.HasField("stage"), ended.stage) == (True, 1)


async def test_agent_model_outside_its_roots_is_never_started(
    coordinator: tuple[Coordinator, str], start_agent: StartAgent, tmp_path: Path
) -> None:
    await start_agent(allow_roots=(tmp_path / "models",))
    attendance = await coordinator[0].next_agent()
    attendance.assign("a", pretrained=str(tmp_path / "models" / ".." / "secret"))
    ended = await attendance.hear("ended")
    assert ended.cause == pb.END_CAUSE_NOT_STARTED
    assert "--allow-root" in ended.message


@pytest.mark.parametrize("job", ["../a", "a/b", "", ".."])
async def test_agent_job_id_that_is_a_path_is_never_started(
    job: str, coordinator: tuple[Coordinator, str], start_agent: StartAgent, tmp_path: Path
) -> None:
    await start_agent()
    attendance = await coordinator[0].next_agent()
    attendance.assign(job)
    ended = await attendance.hear("ended")
    assert ended.cause == pb.END_CAUSE_NOT_STARTED
    assert "is no name" in ended.message
    assert not os.listdir(tmp_path)


async def test_agent_standby_takes_the_work_and_a_new_one_follows_after_the_job(
    coordinator: tuple[Coordinator, str], start_agent: StartAgent
) -> None:
    agent = await start_agent(standby=True)
    attendance = await coordinator[0].next_agent()
    await until(lambda: agent.standby_pid is not None)
    standby = agent.standby_pid
    attendance.assign("exits-7")
    assert (await attendance.hear("started")).pid == standby
    assert (await attendance.hear("ended")).exit_code == 7
    await until(lambda: agent.standby_pid not in (None, standby))


async def test_agent_is_ready_only_while_a_stage_is_loaded(
    coordinator: tuple[Coordinator, str], start_agent: StartAgent
) -> None:
    agent = await start_agent()
    attendance = await coordinator[0].next_agent()
    assert agent.ready()[0] is False
    assert agent.exposed() is None
    attendance.assign("loads")
    await until(lambda: agent.ready()[0])
    exposed = agent.exposed()
    assert exposed is not None
    assert (exposed.work.job, exposed.record.read().sent_bytes) == ("loads", 11)
    attendance.release("loads")
    await attendance.hear("ended")
    await until(lambda: agent.exposed() is None)
    assert agent.ready()[0] is False


async def test_agent_that_is_killed_takes_its_executor_with_it(
    coordinator: tuple[Coordinator, str], tmp_path: Path
) -> None:
    program = (
        "import asyncio, sys\n"
        "from tests.contract.agent_rig import FAKE, Agent, Path, config\n"
        "settings = config(sys.argv[1], Path(sys.argv[2]))\n"
        "asyncio.run(Agent(settings, metrics_address='127.0.0.1:1', command=FAKE).run())\n"
    )
    agent = await asyncio.create_subprocess_exec(sys.executable, "-c", program, coordinator[1], str(tmp_path))
    try:
        attendance = await coordinator[0].next_agent()
        attendance.assign("waits")
        pid = (await attendance.hear("started")).pid
        while not (await attendance.hear("heartbeat")).HasField("idle_seconds"):
            pass  # it has its work
        assert is_alive(pid)
    finally:
        agent.kill()
        await agent.wait()
    await until(lambda: not is_alive(pid))


async def test_agent_waits_for_a_coordinator_that_comes_later(tmp_path: Path) -> None:
    coordinator = Coordinator()
    with socket.create_server(("127.0.0.1", 0)) as nobody:
        address = f"127.0.0.1:{nobody.getsockname()[1]}"
        agent = Agent(config(address, tmp_path), metrics_address="127.0.0.1:1", command=FAKE)
        task = asyncio.create_task(agent.run())
        nobody.settimeout(20)
        caller, _ = await asyncio.to_thread(nobody.accept)
        caller.close()  # the agent has dialled in vain
    server = await start(coordinator, address)
    try:
        await (await coordinator.next_agent()).hear("hello")
    finally:
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)
        await server.stop(0)


@pytest.mark.parametrize("address", ["127.0.0.1:1", "coordinator.invalid:7700"])
async def test_agent_without_a_coordinator_gives_up_and_names_the_address(address: str, tmp_path: Path) -> None:
    agent = Agent(config(address, tmp_path, wait_seconds=1.0), metrics_address="127.0.0.1:1", command=FAKE)
    with pytest.raises(UnreachableError, match=f"no coordinator answered at {address} for 1 s"):
        await asyncio.wait_for(agent.run(), 30)
