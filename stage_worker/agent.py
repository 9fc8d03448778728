"""The supervisor of one worker slot: offers it to the coordinator, keeps its executor, ends it.

A thin shell: ``agent_state`` decides, this carries out. Never imports torch.
"""

import asyncio
import contextlib
import json
import os
import time
import uuid
from collections.abc import Coroutine, Sequence
from pathlib import Path
from typing import Any

import structlog
from takt.rpc.errors import UnreachableError
from takt.v1 import workers_pb2 as pb

from stage_worker.agent_events import (
    Abandoned,
    Command,
    CoordinatorFound,
    CoordinatorLost,
    Event,
    Exited,
    KillExecutor,
    Released,
    SayEnded,
    StartExecutor,
    StartFailed,
    StartStandby,
    Ticked,
    Work,
)
from stage_worker.agent_inspect import inspect_model
from stage_worker.agent_messages import decode_assignment, encode_ended, encode_work, refused_model
from stage_worker.agent_metrics import Exposed
from stage_worker.agent_process import ExecutorProcess, tail
from stage_worker.agent_state import AgentState, advance, readiness
from stage_worker.agent_stream import CoordinatorStream, StreamLostError
from stage_worker.config import AgentConfig

_TICK_SECONDS = 0.25
_HEARTBEAT_SECONDS = 1.0
_REDIAL_SECONDS = 0.5
_STOP_SECONDS = 5.0
_BOUNDARY_SECONDS = 25.0
"""What a coordinator gets that was told of a stop, to save the job's state and end the executor."""
_SETTLE_SECONDS = 5.0

log = structlog.get_logger()


class Agent:
    """Runs one slot. All of it lives on one event loop; ``exposed`` and ``ready`` may be called from any thread."""

    def __init__(self, config: AgentConfig, *, metrics_address: str, command: Sequence[str] | None = None) -> None:
        """Prepare a slot.

        Args:
            config: its settings.
            metrics_address: where its HTTP endpoint listens, host:port.
            command: program of an executor, for tests; the real one where absent.
        """
        self._config = config
        self._command = tuple(command) if command is not None else config.executor_command()
        self._hello = pb.AgentHello(
            agent=str(uuid.uuid4()),
            host=config.advertise,
            slot=config.slot,
            device=config.device,
            pid=os.getpid(),
            metrics_address=metrics_address,
        )
        self._state = AgentState(wants_standby=config.standby, orphan_seconds=config.orphan_seconds)
        self._events: asyncio.Queue[Event] = asyncio.Queue()
        self._executor: ExecutorProcess | None = None
        self._standby: ExecutorProcess | None = None
        self._stream: CoordinatorStream | None = None
        self._idle = asyncio.Event()  # no executor has work
        self._idle.set()
        self._hurried = asyncio.Event()  # a stop waits for nobody any more
        self._tasks: set[asyncio.Task[None]] = set()

    @property
    def standby_pid(self) -> int | None:
        """Process id of the warm executor, if there is one."""
        return None if self._standby is None else self._standby.pid

    def exposed(self) -> Exposed | None:
        """Return the executor whose figures /metrics shows."""
        running, executor = self._state.running, self._executor
        return None if running is None or executor is None else Exposed(running.work, executor.reader())

    def ready(self) -> tuple[bool, str]:
        """Return whether the slot has its stages loaded and its job is well, and why or why not."""
        executor = self._executor
        return readiness(self._state, None if executor is None else executor.snapshot())

    async def run(self) -> None:
        """Serve the coordinator until cancelled; leaves no process behind.

        Raises:
            UnreachableError: no coordinator answered for ``wait_seconds``.
        """
        work = (self._decide(), self._tick(), self._heartbeat(), self._attend())
        tasks = [asyncio.create_task(each) for each in work]
        try:
            done, _ = await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
            for task in done:
                task.result()
        finally:
            for task in (*tasks, *self._tasks):
                task.cancel()
            for process in (self._executor, self._standby):
                if process is not None:
                    process.kill()
            await asyncio.gather(*tasks, *self._tasks, return_exceptions=True)
            for process in (self._executor, self._standby):
                if process is not None:
                    await process.ended()

    async def stop(self, reason: str) -> None:
        """End the executor in good order and tell the coordinator; then ``run`` may be cancelled.

        The coordinator is told first, and may have the executor save its state and end by itself for a while.
        """
        self._hurried.clear()
        if not self._idle.is_set() and self._stream is not None and self._stream.welcomed:
            self._say(pb.AttendRequest(stopping=pb.AgentStopping()))
            waits = [asyncio.create_task(event.wait()) for event in (self._idle, self._hurried)]
            await asyncio.wait(waits, timeout=_BOUNDARY_SECONDS, return_when=asyncio.FIRST_COMPLETED)
            for wait in waits:
                wait.cancel()
        self._events.put_nowait(Abandoned(reason))
        try:
            async with asyncio.timeout(_STOP_SECONDS):
                await self._idle.wait()
                if self._stream is not None:
                    await self._stream.leave()
        except TimeoutError:
            log.warning("executor did not end in time", seconds=_STOP_SECONDS)

    def hurry(self) -> None:
        """Cut a stop short: the executor is killed now."""
        self._hurried.set()

    async def _decide(self) -> None:
        while True:
            event = await self._events.get()
            self._state, commands = advance(self._state, event, time.monotonic())
            for command in commands:
                await self._carry_out(command)
            if self._state.running is None:
                self._executor = None
                self._idle.set()
            else:
                self._idle.clear()
            self._events.task_done()

    async def _carry_out(self, command: Command) -> None:
        match command:
            case StartExecutor(work):
                await self._start(work)
            case KillExecutor():
                assert self._executor is not None  # only an executor that was started is killed
                reason = self._state.running.reason if self._state.running is not None else ""
                log.info("executor is killed", pid=self._executor.pid, reason=reason)
                self._executor.kill()
            case StartStandby():
                await self._start_standby()
            case SayEnded():
                log.info("executor has ended", job=command.job, attempt=command.attempt, reason=command.message)
                self._say(pb.AttendRequest(ended=self._encode_ended(command)))

    async def _start(self, work: Work) -> None:
        log_file = self._job_folder(work.job) / work.log
        try:
            log_file.parent.mkdir(parents=True, exist_ok=True)
            executor, self._standby = self._standby, None
            if executor is None or not executor.is_alive:
                executor = await ExecutorProcess.spawn(self._command, log=log_file)
        except OSError as error:
            self._events.put_nowait(StartFailed(f"the executor could not be started: {error}"))
            return
        self._executor = executor
        started = pb.ExecutorStarted(job=work.job, attempt=work.attempt, pid=executor.pid, log=work.log)
        self._say(pb.AttendRequest(started=started))
        log.info("executor started", job=work.job, attempt=work.attempt, worker=work.worker, pid=executor.pid)
        self._spawn(self._watch_end(executor))
        # Not awaited: a busy executor reads late, and the watch over it must go on.
        self._spawn(executor.hand_over(json.dumps({"log": str(log_file), "assignment": work.assignment})))

    async def _start_standby(self) -> None:
        try:
            self._standby = await ExecutorProcess.spawn(self._command, log=None)
        except OSError as error:
            log.warning("standby executor could not be started", error=str(error))

    async def _watch_end(self, executor: ExecutorProcess) -> None:
        returncode = await executor.ended()
        _, stage = executor.snapshot().account
        self._events.put_nowait(Exited(returncode, stage))

    async def _tick(self) -> None:
        while True:
            executor = self._executor
            self._events.put_nowait(Ticked(None if executor is None else executor.snapshot()))
            await asyncio.sleep(_TICK_SECONDS)

    async def _heartbeat(self) -> None:
        while True:
            beat = pb.Heartbeat()
            if self._state.running is not None:
                beat.job = self._state.running.work.job
            if self._executor is not None:
                snapshot = self._executor.snapshot()
                if last := snapshot.progressed or snapshot.started:
                    beat.idle_seconds = time.monotonic() - last
            self._say(pb.AttendRequest(heartbeat=beat))
            await asyncio.sleep(_HEARTBEAT_SECONDS)

    async def _attend(self) -> None:
        address, wait_seconds = self._config.coordinator, self._config.wait_seconds
        heard_at, told = time.monotonic(), ""
        while True:
            stream = self._stream = CoordinatorStream(address, hello=await self._hello_now(), on_message=self._obey)
            try:
                await stream.attend()
            except StreamLostError as error:
                reason = str(error)
            self._stream = None
            if stream.left:
                return
            now = time.monotonic()
            if stream.welcomed:
                heard_at, told = now, ""
                log.warning("coordinator lost", address=address, reason=reason)
                self._events.put_nowait(CoordinatorLost(reason))
                self.hurry()
            elif now - heard_at >= wait_seconds and self._idle.is_set():
                raise UnreachableError(
                    f"no coordinator answered at {address} for {wait_seconds:g} s ({reason}); "
                    "start it, or name another with --coordinator HOST:PORT"
                )
            elif reason != told:
                told = reason
                log.warning("coordinator does not answer yet", address=address, reason=reason)
            await asyncio.sleep(_REDIAL_SECONDS)

    async def _hello_now(self) -> pb.AgentHello:
        """Return the offer, with what its executor works on and how the last one ended: it may not have been heard."""
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(_SETTLE_SECONDS):
                await self._events.join()  # all that was heard before is acted on
        running, said = self._state.running, self._state.last_said
        work = None if running is None else encode_work(running.work, pid=self._executor.pid if self._executor else 0)
        hello = pb.AgentHello(work=work, last_end=None if said is None else self._encode_ended(said))
        hello.MergeFrom(self._hello)
        return hello

    def _obey(self, message: pb.AttendResponse) -> None:
        match message.WhichOneof("message"):
            case "welcome":
                self._events.put_nowait(CoordinatorFound())
            case "assign":
                self._events.put_nowait(decode_assignment(message.assign, allow_roots=self._config.readable_roots))
            case "release":
                release = message.release
                self._events.put_nowait(Released(release.job, release.attempt, release.grace_seconds))
            case "inspect_model":
                self._spawn(self._inspect(message.inspect_model))
            case other:
                log.warning("coordinator sent a message of a kind that is not known here", kind=other)

    async def _inspect(self, question: pb.InspectModel) -> None:
        refusal = refused_model(question.spec_json, allow_roots=self._config.readable_roots)
        answer = (
            pb.ModelInspected(request=question.request, error=refusal)
            if refusal is not None
            else await inspect_model(question)
        )
        self._say(pb.AttendRequest(inspected=answer))

    def _encode_ended(self, said: SayEnded) -> pb.ExecutorEnded:
        log_tail = tail(self._job_folder(said.job) / said.log) if said.log else ""
        return encode_ended(said, log_tail=log_tail)

    def _say(self, message: pb.AttendRequest) -> None:
        if self._stream is not None:
            self._stream.say(message)

    def _spawn(self, coroutine: Coroutine[Any, Any, None]) -> None:
        task = asyncio.create_task(coroutine)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    def _job_folder(self, job: str) -> Path:
        return self._config.state_dir / "jobs" / job
