"""One attempt from hello to stop: loads its part, meets the others, obeys, and tells why if it cannot."""

import os
import resource
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import structlog
import torch
from takt.rpc.client import channel
from takt.v1 import workers_pb2 as pb

from stage_worker.batches import DataServiceSource
from stage_worker.clock import ClockOffset, clock_name
from stage_worker.comm import TransportName, join_transport
from stage_worker.comm_store import AttemptStore, RendezvousError, join_store, open_store
from stage_worker.engine.commands import Command
from stage_worker.engine.engine import Engine
from stage_worker.engine.failure import CommandFailed
from stage_worker.engine.ledger import Activity, Ledger
from stage_worker.engine.shared import routes_of
from stage_worker.engine.transport import PeerLostError, Transport
from stage_worker.executor_config import ExecutorConfig
from stage_worker.executor_job import ExecutorJob
from stage_worker.executor_link import CoordinatorLink, CoordinatorLostError
from stage_worker.executor_loop import CommandLoop
from stage_worker.models.config import fit_to_task, new_config, pretrained_config
from stage_worker.models.loaded import LoadedModel
from stage_worker.models.loading import load_model
from stage_worker.record import RecordWriter
from stage_worker.restore import restore_engine

PULSE_SECONDS = 0.5
_PEER_SECONDS = 86_400.0
"""How long a worker waits for a peer, which may have many commands to do first: longer than any step.

Agents judge who computes for too long, the coordinator a standstill; this ends what neither of them is there to see.
"""

log = structlog.get_logger()


class ExecutorRun:
    """One worker of one attempt. Everything but the reading of streams happens on the calling thread."""

    def __init__(self, config: ExecutorConfig, job: ExecutorJob, record: RecordWriter) -> None:
        """Begin to account for time, and dial the coordinator."""
        self._config = config
        self._job = job
        self._record = record
        self._device = torch.device(config.device)
        stages = [part.stage for part in job.slices]
        self._ledger = Ledger(cells=record.start(stages=stages), on_switch=record.switch)
        threading.Thread(target=self._beat, name="pulse", daemon=True).start()
        self._clock = ClockOffset(clock_name())
        hello = pb.ExecutorHello(
            job=job.job, attempt=job.attempt, worker=job.place.worker, pid=os.getpid(), sent=time.monotonic()
        )
        self._link = CoordinatorLink(
            channel(config.coordinator), hello, clock=self._clock, limit_seconds=config.orphan_seconds
        )

    def run(self) -> int:
        """Live through the attempt; return the exit code of the process: 0 after STOP."""
        try:
            self._live()
        except CoordinatorLostError as error:
            log.error("coordinator lost", reason=str(error))
            return 1
        except Exception as error:
            log.exception("executor failed")
            self._link.say(pb.ExecuteRequest(failure=failure_of(error)))
            self._link.close()
            return 1
        self._link.close()
        return 0

    def _live(self) -> None:
        with self._ledger.during(Activity.LOAD):
            store = self._open_store()
            model = self._load()
            transport = self._join(store, model)
        batches = self._read_ahead(model)
        loop = CommandLoop(
            self._link,
            model=model,
            make_engine=lambda on_command, before_update: self._make_engine(
                model, transport, batches, on_command, before_update
            ),
            batches=batches,
            ledger=self._ledger,
            record=self._record,
            clock=self._clock,
            held_bytes=self._held_bytes,
            checkpoints=self._checkpoints,
        )
        self._record.set_loaded()
        log.info("stages are loaded", stages=sorted(model.stages), parameters=model.num_parameters)
        ready = pb.ExecutorReady(parameters=model.num_parameters, peak_bytes=self._peak_bytes())
        self._link.say(pb.ExecuteRequest(ready=ready))
        loop.run()
        transport.close()
        batches.close()

    def _open_store(self) -> AttemptStore | None:
        if self._job.place.worker != 0:
            return None
        store = open_store(self._config.advertise, limit_seconds=_PEER_SECONDS)
        self._link.say(pb.ExecuteRequest(store_opened=pb.StoreOpened(address=store.address)))
        return store

    def _load(self) -> LoadedModel:
        job = self._job
        config: Any = (
            pretrained_config(job.folder, job.objective)
            if job.folder is not None
            else new_config(job.config, job.needs, job.objective)
        )
        fit_to_task(config, job.needs, attention=job.attention)
        saved, shards = job.saved, None if job.saved is None else job.saved.parameters
        return load_model(
            config,
            objective=job.objective,
            slices=job.slices,
            layers_by_stage=job.layers_by_stage,
            folder=job.weights or job.folder if saved is None else self._checkpoints / f"step-{saved.step}",
            shards=shards,
            seed=job.seed,
            device=self._device,
            frozen_layers=job.frozen_layers,
        )

    def _join(self, own_store: AttemptStore | None, model: LoadedModel) -> Transport:
        routes = routes_of(model, worker_by_stage=self._job.pp_rank_by_stage)
        address = self._link.rendezvous()
        try:
            store = own_store if own_store is not None else join_store(address, limit_seconds=_PEER_SECONDS)
            return join_transport(
                TransportName(self._config.transport),
                store,
                place=self._job.place,
                pp_rank_by_stage=self._job.pp_rank_by_stage,
                shared_pairs=tuple(dict.fromkeys(pair for route in routes for pair in route.pairs)),
                job=self._job.job,
                attempt=self._job.attempt,
                host=self._config.advertise,
                device=self._device,
                limit_seconds=_PEER_SECONDS,
            )
        except RendezvousError as error:
            raise PeerLostError(str(error)) from error

    def _read_ahead(self, model: LoadedModel) -> DataServiceSource:
        family = model.family
        columns = [family.columns(is_first=part.is_first, is_last=part.is_last) for part in self._job.slices]
        batches = DataServiceSource(
            channel(self._job.data_service),
            address=self._job.data_service,
            job=self._job.job,
            dp_rank=self._job.place.dp_rank,
            columns=frozenset().union(*columns),
            digests=self._job.digests,
        )
        self._link.notify(lambda commands: batches.expect(commands.setting))
        return batches

    def _make_engine(
        self,
        model: LoadedModel,
        transport: Transport,
        batches: DataServiceSource,
        on_command: Callable[[Command, int], None],
        before_update: Callable[[], None],
    ) -> Engine:
        engine = Engine(
            model,
            optimizer=self._job.optimizer,
            seed=self._job.seed,
            dp=self._job.place.dp,
            dp_rank=self._job.place.dp_rank,
            worker=self._job.place.worker,
            worker_by_stage=[self._job.place.replica[rank] for rank in self._job.pp_rank_by_stage],
            precision=self._job.precision,
            recompute=self._job.recompute,
            transport=transport,
            batches=batches,
            ledger=self._ledger,
            on_command=on_command,
            before_update=before_update,
        )
        if (saved := self._job.saved) is not None:
            restore_engine(engine, self._checkpoints / f"step-{saved.step}", saved)
            log.info("state is restored", step=saved.step, updates_applied=saved.agreed.updates_applied)
        return engine

    @property
    def _checkpoints(self) -> Path:
        """Folder of the job's checkpoints."""
        return self._config.state_dir / "jobs" / self._job.job / "checkpoints"

    def _beat(self) -> None:
        while True:
            self._record.beat(peak_bytes=self._peak_bytes())
            time.sleep(PULSE_SECONDS)

    def _held_bytes(self) -> int:
        """Return the memory that is held now: of the device, or resident where that is the CPU."""
        if self._device.type == "cuda":
            return torch.cuda.memory_allocated(self._device)
        _, resident, *_ = Path("/proc/self/statm").read_text().split()
        return int(resident) * resource.getpagesize()

    def _peak_bytes(self) -> int:
        """Return the most memory held so far: of the device, or resident where that is the CPU."""
        if self._device.type == "cuda":
            return torch.cuda.max_memory_allocated(self._device)
        return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024


def failure_of(error: Exception) -> pb.ExecutorFailure:
    """Return what the coordinator is told of an error: the cause, and where it happened where that is known."""
    if not isinstance(error, CommandFailed):
        return pb.ExecutorFailure(
            type=type(error).__name__, message=str(error), peer_lost=isinstance(error, PeerLostError)
        )
    return pb.ExecutorFailure(
        step=error.step,
        stage=error.stage,
        microbatch=error.microbatch,
        type=type(error.cause).__name__,
        message=str(error.cause),
        peer_lost=isinstance(error.cause, PeerLostError),
    )
