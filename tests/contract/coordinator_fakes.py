"""Fakes of the coordinator's peers: a data service, agents and executors that keep the wire's rules, without torch."""

import asyncio
import hashlib
import json
from collections import Counter
from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import grpc
import grpc.aio
from takt.rpc.client import aio_channel
from takt.v1 import commands_pb2, data_pb2, data_pb2_grpc, workers_pb2, workers_pb2_grpc

NUM_MICROBATCHES = 2
VALIDATION_ROWS = 6


MODEL_FACTS = workers_pb2.ModelFacts(
    model_type="bert", num_layers=4, hidden_size=8, max_positions=512, vocabulary_size=100, token_types=2
)


def digest_of(split: str, *, content: str = "first") -> str:
    """Return the digest of a split's rows."""
    return f"{content} rows of {split}"


def data_facts(total_steps: int) -> data_pb2.DataFacts:
    """Return what the fake data service finds out about a job of so many steps."""
    return data_pb2.DataFacts(
        splits=[
            data_pb2.Split(name="train", rows=64, labelled=True, steps=1, digest=digest_of("train")),
            data_pb2.Split(
                name="validation", rows=VALIDATION_ROWS, labelled=True, steps=2, digest=digest_of("validation")
            ),
        ],
        labels=["no", "yes"],
        num_labels=2,
        vocabulary_size=90,
        steps_per_epoch=2,
        total_steps=total_steps,
    )


class FakeData(data_pb2_grpc.DataServiceServicer):
    """Step s has 8 rows a replica set; replica r, microbatch m is 3 + m wide."""

    def __init__(self) -> None:
        self.refusal = ""
        self.num_replicas = 1
        self.last_step: int | None = None
        """Last training step that it describes, where it knows fewer than were planned."""
        self.described: Counter[int] = Counter()
        self.content: dict[str, str] = {}
        """What a split holds since its file was replaced."""

    async def InspectData(  # noqa: N802
        self, request: data_pb2.InspectDataRequest, context: Any
    ) -> data_pb2.InspectDataResponse:
        if self.refusal:
            await context.abort(grpc.StatusCode.INVALID_ARGUMENT, self.refusal)
        steps = json.loads(request.spec_json)["train"]["max_steps"]
        return data_pb2.InspectDataResponse(facts=data_facts(steps))

    async def DescribeSteps(  # noqa: N802
        self, request: data_pb2.DescribeStepsRequest, context: Any
    ) -> data_pb2.DescribeStepsResponse:
        self.described[request.phase] += 1
        content = self.content.get(request.split, "first")
        if request.digest != digest_of(request.split, content=content):
            await context.abort(grpc.StatusCode.FAILED_PRECONDITION, f"/rows/{request.split}.tsv changed")
        steps = []
        last = request.first + request.count - 1
        if self.last_step is not None and request.phase == data_pb2.PHASE_TRAIN:
            last = min(last, self.last_step)
        for step in range(request.first, last + 1):
            replica = data_pb2.ReplicaShape(
                microbatches=[
                    data_pb2.MicrobatchShape(rows=4, width=3 + m, row_ids=[10 * step + 4 * m + r for r in range(4)])
                    for m in range(NUM_MICROBATCHES)
                ]
            )
            steps.append(
                data_pb2.StepDescription(
                    step=step, epoch=(step - 1) // 2, denominator=8, examples=8, tokens=20, padded_tokens=8,
                    replicas=[replica] * self.num_replicas,
                )
            )  # fmt: skip
        return data_pb2.DescribeStepsResponse(steps=steps)


@dataclass
class Behaviour:
    """What the fake executors do that real ones should not."""

    raise_at: tuple[int, int] | None = None
    """(worker, step) at which an executor raises ValueError('boom')."""
    killed_at: tuple[int, int] | None = None
    """(worker, step) at which an executor is killed by signal 9."""
    hang_at: tuple[int, int] | None = None
    """(worker, step) at which an executor does not go on."""
    overflow_at: frozenset[tuple[int, int]] = frozenset()
    """(worker, step) at which an executor tells that gradients overflowed, as in fp16."""
    leave_out_row: int | None = None
    """Validation row that is not reported."""
    never_ready: bool = False
    make_executor: "Callable[..., FakeExecutor] | None" = None
    """What makes the executors, where it is not ``FakeExecutor``."""


@dataclass
class Transcript:
    """What was said on the Execute streams, by (job, worker)."""

    heard: dict[tuple[str, int], list[commands_pb2.StepCommands]] = field(default_factory=dict)
    num_received: Counter[tuple[str, int]] = field(default_factory=Counter)
    num_sent: Counter[tuple[str, int]] = field(default_factory=Counter)


class FakeAgent:
    """One slot; its executor is a coroutine."""

    def __init__(
        self, address: str, state_dir: Path, *, slot: int, behaviour: Behaviour, transcript: Transcript
    ) -> None:
        self._address = address
        self._state_dir = state_dir
        self._slot = slot
        self._behaviour = behaviour
        self._transcript = transcript
        self._outbox: asyncio.Queue[workers_pb2.AttendRequest | None] = asyncio.Queue()
        self._executor: asyncio.Task[None] | None = None
        self._work: workers_pb2.AgentWork | None = None
        self.model_error = ""
        self.welcomed = asyncio.Event()
        self.released: list[workers_pb2.Release] = []
        self.failure: grpc.aio.AioRpcError | None = None
        self._task = asyncio.create_task(self._attend())

    async def leave(self) -> None:
        """Say goodbye; the coordinator ends the stream."""
        await self._outbox.put(workers_pb2.AttendRequest(leaving=workers_pb2.AgentLeaving()))
        await self._task

    async def fall_silent(self) -> None:
        """End the stream without a goodbye: so a coordinator may see the end of an agent that was killed."""
        await self._outbox.put(None)
        await self._task

    async def redial(self, *, after_seconds: float = 0.0) -> None:
        """Break the stream and open another: with the executor, where it has one."""
        self._task.cancel()
        await asyncio.wait({self._task})
        await asyncio.sleep(after_seconds)
        self.welcomed.clear()
        self._outbox = asyncio.Queue()
        self._task = asyncio.create_task(self._attend())
        await self.welcomed.wait()

    async def vanish(self) -> None:
        """Break the stream, as a dying agent does."""
        for task in (self._task, self._executor):
            if task is not None:
                task.cancel()
                await asyncio.wait({task})

    async def ended(self) -> None:
        """Return when the coordinator has ended the stream."""
        await asyncio.wait({self._task})

    async def _attend(self) -> None:
        async with aio_channel(self._address) as channel:
            call = workers_pb2_grpc.WorkerServiceStub(channel).Attend(self._requests())
            beat = asyncio.create_task(self._beat())
            try:
                async for message in call:
                    self._obey(message)
            except grpc.aio.AioRpcError as error:
                self.failure = error
                self.end_executor()
            else:
                self.end_executor()
            finally:
                beat.cancel()

    def end_executor(self) -> None:
        """End what it runs, if it runs anything."""
        if self._executor is not None:
            self._executor.cancel()

    async def _requests(self) -> AsyncIterator[workers_pb2.AttendRequest]:
        hello = workers_pb2.AgentHello(
            agent=f"agent-{self._slot}-{id(self)}", host="127.0.0.1", slot=self._slot, device="cpu",
            pid=10 + self._slot,
            metrics_address=f"127.0.0.1:{9000 + self._slot}", work=self._work,
        )  # fmt: skip
        yield workers_pb2.AttendRequest(hello=hello)
        while (message := await self._outbox.get()) is not None:
            yield message

    async def _beat(self) -> None:
        while True:
            await asyncio.sleep(0.2)
            busy = self._executor is not None and not self._executor.done()
            self._outbox.put_nowait(
                workers_pb2.AttendRequest(heartbeat=workers_pb2.Heartbeat(job="some" if busy else ""))
            )

    def _obey(self, message: workers_pb2.AttendResponse) -> None:
        match message.WhichOneof("message"):
            case "welcome":
                self.welcomed.set()
            case "assign":
                self._executor = asyncio.create_task(self._supervise(message.assign))
            case "release":
                self.released.append(message.release)
                if self._executor is not None:
                    asyncio.get_running_loop().call_later(message.release.grace_seconds, self._executor.cancel)
            case "inspect_model":
                answer = workers_pb2.ModelInspected(request=message.inspect_model.request, error=self.model_error)
                if not self.model_error:
                    answer.facts.CopyFrom(MODEL_FACTS)
                self._outbox.put_nowait(workers_pb2.AttendRequest(inspected=answer))

    async def _supervise(self, place: workers_pb2.Assignment) -> None:
        started = workers_pb2.ExecutorStarted(
            job=place.job, attempt=place.attempt, pid=1000 + place.worker, log=f"logs/worker-{place.worker}.log"
        )
        self._outbox.put_nowait(workers_pb2.AttendRequest(started=started))
        self._work = workers_pb2.AgentWork(
            job=place.job, attempt=place.attempt, worker=place.worker, pid=started.pid, log=started.log
        )
        ended = workers_pb2.ExecutorEnded(job=place.job, attempt=place.attempt)
        make_executor = self._behaviour.make_executor or FakeExecutor
        executor = make_executor(self._address, self._state_dir, place, self._behaviour, self._transcript)
        try:
            ended.cause, ended.exit_code, ended.signal = await executor.run()
        except asyncio.CancelledError:
            ended.cause = workers_pb2.END_CAUSE_RELEASED
        self._work = None
        self._outbox.put_nowait(workers_pb2.AttendRequest(ended=ended))


class FakeExecutor:
    """Answers commands at once; the loss sum of step s, microbatch m is s + m."""

    def __init__(
        self, address: str, state_dir: Path, place: workers_pb2.Assignment, behaviour: Behaviour, transcript: Transcript
    ) -> None:
        self._address = address
        self._place = place
        self._behaviour = behaviour
        self._key = (place.job, place.worker)
        self._transcript = transcript
        self._transcript.heard[self._key] = []
        self._folder = state_dir / "jobs" / place.job
        self._outbox: asyncio.Queue[workers_pb2.ExecuteRequest | None] = asyncio.Queue()
        self._is_last = place.stages[-1].stage == place.num_stages - 1
        pp = 1 + max(place.pp_rank_by_stage)
        self._dp_rank, self._num_replicas = place.worker // pp, place.num_workers // pp

    async def run(self) -> tuple[workers_pb2.EndCause, int, int]:
        """Execute until the end; return cause, exit code and signal."""
        with (self._folder / "logs" / f"worker-{self._place.worker}.log").open("a") as log:
            log.write(f"worker {self._place.worker} begins\nsecond line\n")
        async with aio_channel(self._address) as channel:
            call = workers_pb2_grpc.WorkerServiceStub(channel).Execute(self._requests())
            async for message in call:
                self._transcript.num_received[self._key] += 1
                if message.HasField("rendezvous"):
                    if not self._behaviour.never_ready:
                        self._say(ready=workers_pb2.ExecutorReady(parameters=7 + self._place.worker, peak_bytes=70))
                    continue
                self._transcript.heard[self._key].append(message.commands)
                end = await self._obey(message.commands)
                if end is not None:
                    await self._outbox.put(None)
                    if end[0] != workers_pb2.END_CAUSE_SIGNALLED:
                        await call.code()
                    return end
        return workers_pb2.END_CAUSE_EXITED, 1, 0

    async def _requests(self) -> AsyncIterator[workers_pb2.ExecuteRequest]:
        place = self._place
        hello = workers_pb2.ExecutorHello(
            job=place.job, attempt=place.attempt, worker=place.worker, pid=1000 + place.worker
        )
        yield workers_pb2.ExecuteRequest(hello=hello)
        if place.worker == 0:
            yield workers_pb2.ExecuteRequest(store_opened=workers_pb2.StoreOpened(address="127.0.0.1:1"))
        while (message := await self._outbox.get()) is not None:
            self._transcript.num_sent[self._key] += 1
            yield message

    def _say(self, **message: Any) -> None:
        self._outbox.put_nowait(workers_pb2.ExecuteRequest(**message))

    async def _obey(self, commands: commands_pb2.StepCommands) -> tuple[workers_pb2.EndCause, int, int] | None:
        here = (self._place.worker, commands.step)
        trains = commands.phase == data_pb2.PHASE_TRAIN
        if trains and here == self._behaviour.raise_at:
            self._say(
                failure=workers_pb2.ExecutorFailure(step=commands.step, stage=1, type="ValueError", message="boom")
            )
            return workers_pb2.END_CAUSE_EXITED, 1, 0
        if trains and here == self._behaviour.killed_at:
            return workers_pb2.END_CAUSE_SIGNALLED, 0, 9
        if trains and here == self._behaviour.hang_at:
            await asyncio.Event().wait()
        last_seq = commands.first_seq + len(commands.commands) - 1
        if commands.acknowledge:
            self._say(done=workers_pb2.CommandDone(seq=last_seq))
        ops = {command.op for command in commands.commands}
        if commands_pb2.OP_STOP in ops:
            return workers_pb2.END_CAUSE_EXITED, 0, 0
        if commands_pb2.OP_SAVE in ops:
            self._say(saved=self._save(commands.step))
        if commands.ends_step:
            if not trains and self._is_last:
                self._say(rows=self._rows(commands.step, commands.after))
            self._say(step=self._report(commands, last_seq))
        return None

    def _report(self, commands: commands_pb2.StepCommands, last_seq: int) -> commands_pb2.StepReport:
        is_train = commands.phase == data_pb2.PHASE_TRAIN
        losses = [float(commands.step + m) for m in range(NUM_MICROBATCHES)] if self._is_last and is_train else []
        overflows = is_train and (self._place.worker, commands.step) in self._behaviour.overflow_at
        return commands_pb2.StepReport(
            phase=commands.phase, step=commands.step, after=commands.after, last_seq=last_seq, loss_sums=losses,
            grad_norm=None if overflows else 2.5, learning_rate=1e-3, skipped=overflows,
            loss_scale=65536.0 if overflows else None,
            times=[
                *(
                    commands_pb2.TimeShare(activity="F", busy=True, stage=part.stage, seconds=0.5)
                    for part in self._place.stages
                ),
                commands_pb2.TimeShare(activity="command", busy=False, seconds=0.25),
            ],
        )  # fmt: skip

    def _rows(self, step: int, after: int) -> workers_pb2.EvaluationRows:
        """Its replica's of rows 3(step-1)..3(step-1)+2; the label of row r is r % 2, predicted right but for row 4."""
        rows = []
        for row_id in range(3 * (step - 1), 3 * step):
            is_mine = row_id % self._num_replicas == self._dp_rank
            if is_mine and row_id != self._behaviour.leave_out_row:
                label = row_id % 2
                chosen = label if row_id != 4 else 1 - label
                outputs = [1.0 if index == chosen else 0.0 for index in range(2)]
                rows.append(workers_pb2.EvaluationRow(row_id=row_id, outputs=outputs, label=label))
        return workers_pb2.EvaluationRows(split="validation", step=step, rows=rows, after=after)

    def _save(self, step: int) -> workers_pb2.ShardsSaved:
        folder = self._folder / "checkpoints" / f"step-{step}"
        folder.mkdir(parents=True, exist_ok=True)
        shards = []
        for part in self._place.stages:
            name, content = f"stage-{part.stage:03}.safetensors", b"weights %d" % part.stage
            (folder / name).write_bytes(content)
            shards.append(
                workers_pb2.Shard(
                    file=name, kind="parameters", stage=part.stage, sha256=hashlib.sha256(content).hexdigest(),
                    bytes=len(content),
                )
            )  # fmt: skip
        return workers_pb2.ShardsSaved(step=step, shards=shards)
