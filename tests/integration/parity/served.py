"""Jobs whose rows come from a data service: from the line of a file to a gradient, with workers as threads."""

import asyncio
import threading
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

import torch
from prometheus_client import CollectorRegistry
from takt.rpc.client import channel
from takt.rpc.server import RunningServer, serve
from takt.v1 import data_pb2 as pb
from takt.v1.data_pb2_grpc import DataServiceStub, add_DataServiceServicer_to_server

from benchmarks.local_case import LocalCase, commands_of, layers_of, slices_of
from benchmarks.local_run import optimizer_of, precision_of
from dataloader_svc.metrics import DataMetrics
from dataloader_svc.servicer import SERVICE_NAME, STATUS, DataServicer
from dataloader_svc.store import Datasets
from stage_worker.batches import DataServiceSource
from stage_worker.comm_gloo import GlooTransport
from stage_worker.comm_place import Place
from stage_worker.decode import encode_phase
from stage_worker.engine.commands import Op, Phase, Shape, StepCommands, StepSetting
from stage_worker.engine.engine import Engine
from stage_worker.engine.ledger import Ledger
from stage_worker.engine.result import StepResult
from stage_worker.engine.transport import Departure, Message, TransferKind
from stage_worker.models.config import TaskNeeds, fit_to_task, pretrained_config
from stage_worker.models.loaded import LoadedModel
from stage_worker.models.loading import load_model
from stage_worker.models.microbatch import Microbatch
from stage_worker.models.objective import Objective
from tests.data_jobs import spec_json
from tests.integration.parity.threaded import joined, together

LIMIT_SECONDS = 20.0


@dataclass(slots=True)
class Told:
    """What one worker saw and told."""

    steps: list[StepResult] = field(default_factory=list)
    gradients: dict[str, torch.Tensor] = field(default_factory=dict)
    """Of its parameters, before the last training step's update."""
    taken: dict[tuple[int, int], Microbatch] = field(default_factory=dict)
    """By step and microbatch: the rows that the engine took."""
    sent: dict[tuple[TransferKind, int, int], int] = field(default_factory=dict)
    """By kind, step and microbatch: bytes handed to the transport."""


@contextmanager
def data_service(state: Path) -> Iterator[str]:
    """Serve the jobs of a state folder for the block; the value is host:port."""
    loop = asyncio.new_event_loop()
    thread = threading.Thread(target=loop.run_forever, name="data service", daemon=True)
    thread.start()

    async def start() -> RunningServer:
        servicer = DataServicer(Datasets(state_dir=state, roots=(Path("/"),), metrics=DataMetrics(CollectorRegistry())))
        return await serve(
            "127.0.0.1:0",
            add=lambda server: add_DataServiceServicer_to_server(servicer, server),
            services=[SERVICE_NAME],
            status=STATUS,
        )

    server = asyncio.run_coroutine_threadsafe(start(), loop).result(LIMIT_SECONDS)
    try:
        yield server.address
    finally:
        asyncio.run_coroutine_threadsafe(server.stop(0), loop).result(LIMIT_SECONDS)
        loop.call_soon_threadsafe(loop.stop)
        thread.join(LIMIT_SECONDS)
        loop.close()


@dataclass(frozen=True)
class ServedJob:
    """A job with a pretrained model in one layout."""

    state: Path
    """Holds the jobs; the data service's state folder."""
    name: str
    model: Path
    data: dict[str, Any]
    """Values of the spec's ``data`` section."""
    num_rows: int
    """Rows of a training step."""
    pp: int = 1
    dp: int = 1
    num_microbatches: int = 1
    learning_rate: float = 0.0
    """Zero: every step has the same weights."""

    @property
    def spec(self) -> str:
        """Its resolved spec, as far as a data service reads it."""
        values = {
            **{f"data.{key}": value for key, value in self.data.items()},
            "model.pretrained": str(self.model),
            "parallel.pp": self.pp,
            "parallel.dp": self.dp,
            "schedule.num_microbatches": self.num_microbatches,
            "train.global_batch_size": self.num_rows,
            "eval.batch_size": 4,
        }
        return spec_json(values)

    @property
    def case(self) -> LocalCase:
        """The same as a case, whose rows do not count."""
        return LocalCase(
            model={},
            folder=str(self.model),
            pp=self.pp,
            dp=self.dp,
            num_microbatches=self.num_microbatches,
            learning_rate=self.learning_rate,
        )

    def run(self, *, phase: Phase = Phase.TRAIN, split: str = "train", num_steps: int = 1) -> list[Told]:
        """Run the first steps of a phase, all workers in threads; return what each worker saw."""
        folder = self.state / "jobs" / self.name
        folder.mkdir(parents=True)
        (folder / "spec.json").write_text(self.spec)
        with ExitStack() as stack:
            address = stack.enter_context(data_service(self.state))
            stub = DataServiceStub(stack.enter_context(channel(address)))
            facts = stub.InspectData(pb.InspectDataRequest(spec_json=self.spec), timeout=LIMIT_SECONDS).facts
            request = pb.DescribeStepsRequest(
                job=self.name, phase=encode_phase(phase), split=split, first=1, count=num_steps
            )
            steps = list(stub.DescribeSteps(request, timeout=LIMIT_SECONDS).steps)
            assert len(steps) == num_steps
            transports = joined(pp=self.pp, dp=self.dp)
            for transport in transports:
                stack.callback(transport.close)

            def work(worker: int) -> Told:
                place = Place(worker=worker, pp=self.pp, dp=self.dp)
                return _Worker(self, place, facts, transports[worker], address).obey(steps, phase=phase, split=split)

            return together([partial(work, worker) for worker in range(self.pp * self.dp)])


class _Worker:
    """One worker: an engine whose rows the data service gives, and what passes it."""

    def __init__(
        self, job: ServedJob, place: Place, facts: pb.DataFacts, transport: GlooTransport, address: str
    ) -> None:
        self._told = Told()
        self._place = place
        self._case = job.case
        self._model = _part(job, place, facts)
        family, parts = self._model.family, [stage.slice for stage in self._model.stages.values()]
        columns = [family.columns(is_first=part.is_first, is_last=part.is_last) for part in parts]
        self._channel = channel(address)
        self._batches = DataServiceSource(
            self._channel,
            address=address,
            job=job.name,
            dp_rank=place.dp_rank,
            columns=frozenset().union(*columns),
            limit_seconds=LIMIT_SECONDS,
        )
        self._engine = Engine(
            self._model,
            optimizer=optimizer_of(self._case),
            seed=self._case.seed,
            dp=job.dp,
            dp_rank=place.dp_rank,
            worker=place.worker,
            worker_by_stage=list(place.replica),
            precision=precision_of(self._case),
            transport=_watched(transport, self._told),
            batches=self,
            ledger=Ledger(),
        )

    def get(self, setting: StepSetting, microbatch: int) -> Microbatch:
        """See ``BatchSource.get``; keep what is given."""
        rows = self._batches.get(setting, microbatch)
        self._told.taken[setting.step, microbatch] = rows
        return rows

    def obey(self, steps: Sequence[pb.StepDescription], *, phase: Phase, split: str) -> Told:
        plan = self._case.train_plan() if phase is Phase.TRAIN else self._case.evaluation_plan()
        commands = commands_of(plan, self._place)
        # Behind the last command of a training step, the update, the gradients are gone.
        cut = len(commands) - 1 if commands[-1].op is Op.STEP else 0
        seq = 1
        with self._channel:
            for step in steps:
                shapes = step.replicas[self._place.dp_rank].microbatches
                setting = StepSetting(
                    phase=phase,
                    split=split,
                    step=step.step,
                    denominator=step.denominator,
                    microbatches=tuple(Shape(shape.rows, shape.width) for shape in shapes),
                )
                if cut:
                    assert self._engine.run(StepCommands(setting, seq, commands[:cut], ends_step=False)) is None
                    held = self._model.held.items()
                    self._told.gradients = {name: p.grad.clone() for name, p in held if p.grad is not None}
                done = self._engine.run(StepCommands(setting, seq + cut, commands[cut:], ends_step=True))
                assert done is not None
                self._told.steps.append(done)
                self._batches.release(setting)
                seq += len(commands)
            self._batches.close()
        return self._told


def _part(job: ServedJob, place: Place, facts: pb.DataFacts) -> LoadedModel:
    """Return one worker's layers, as an executor loads them with these facts."""
    config = pretrained_config(job.model)
    needs = TaskNeeds(
        labels=tuple(facts.labels),
        num_labels=facts.num_labels,
        pad_token_id=facts.pad_token_id,
        vocabulary_size=facts.vocabulary_size,
    )
    fit_to_task(config, needs, attention="sdpa")
    plan = job.case.train_plan()
    return load_model(
        config,
        objective=Objective.CLASSIFICATION,
        slices=slices_of(plan, place, num_layers=config.num_hidden_layers),
        layers_by_stage=layers_of(plan, num_layers=config.num_hidden_layers),
        folder=job.model,
        seed=job.case.seed,
        device=torch.device("cpu"),
        frozen_layers=None,
    )


def _watched(transport: GlooTransport, told: Told) -> GlooTransport:
    """Have a transport tell the bytes of each of its messages."""
    send = transport.send

    def sending(tensor: torch.Tensor, message: Message, *, to_worker: int) -> Departure:
        told.sent[message.kind, message.step, message.microbatch] = tensor.numel() * tensor.element_size()
        return send(tensor, message, to_worker=to_worker)

    transport.send = sending  # type: ignore[method-assign]
    return transport
