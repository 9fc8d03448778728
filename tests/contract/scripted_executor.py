"""A real executor process, and a coordinator that follows a script."""

import json
import subprocess
import sys
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from queue import Queue
from typing import Any

import grpc
from google.protobuf import json_format
from takt.v1 import commands_pb2, data_pb2
from takt.v1 import workers_pb2 as pb
from takt.v1 import workers_pb2_grpc as pb_grpc

from stage_worker.record import Record, RecordReader, Snapshot

WAIT_SECONDS = 60.0
ORPHAN_SECONDS = 2.0
MODEL: dict[str, Any] = {
    "model_type": "bert",
    "hidden_size": 16,
    "num_hidden_layers": 2,
    "num_attention_heads": 2,
    "intermediate_size": 32,
    "max_position_embeddings": 32,
    "vocab_size": 45,
}
SPEC: dict[str, Any] = {
    "model": {"pretrained": None, "config": MODEL, "attention": "sdpa"},
    "parallel": {"pp": 1, "dp": 1},
    "train": {
        "optimizer": "adamw",
        "learning_rate": 1e-3,
        "lr_schedule": "constant",
        "warmup_fraction": 0.0,
        "weight_decay": 0.01,
        "max_grad_norm": 0.0,
        "precision": "fp32",
        "boundary_dtype": "compute",
        "recompute": "none",
        "objective": "classification",
        "frozen_layers": None,
        "seed": 1,
    },
    "limits": {"step_timeout_seconds": 30.0},
}


class ScriptedCoordinator(pb_grpc.WorkerServiceServicer):
    """One executor's coordinator; a test says what it says."""

    def __init__(self) -> None:
        self.heard: Queue[pb.ExecuteRequest] = Queue()
        self._said: Queue[pb.ExecuteResponse | None] = Queue()
        self._is_over = False

    def Execute(  # noqa: N802  gRPC's name
        self, request_iterator: Iterator[pb.ExecuteRequest], context: "grpc.ServicerContext[Any, Any]"
    ) -> Iterator[pb.ExecuteResponse]:
        if self._is_over:
            context.abort(grpc.StatusCode.FAILED_PRECONDITION, "the attempt is over")
        threading.Thread(target=self._listen, args=(request_iterator,), daemon=True).start()
        yield from iter(self._said.get, None)

    def _listen(self, requests: Iterator[pb.ExecuteRequest]) -> None:
        try:
            for request in requests:
                self.heard.put(request)
        except grpc.RpcError:
            pass  # the executor is gone
        self.hang_up()

    def hear(self, kind: str) -> Any:
        """Return the next message, which must be of this kind."""
        message = self.heard.get(timeout=WAIT_SECONDS)
        assert message.WhichOneof("message") == kind, message
        return getattr(message, kind)

    def meet(self, address: str) -> None:
        self._said.put(pb.ExecuteResponse(rendezvous=pb.Rendezvous(address=address)))

    def command(self, message: commands_pb2.StepCommands) -> None:
        self._said.put(pb.ExecuteResponse(commands=message))

    def hang_up(self) -> None:
        """End the stream, and refuse another."""
        self._is_over = True
        self._said.put(None)

    @contextmanager
    def serving(self) -> Iterator[str]:
        """Serve for the block; the value is host:port."""
        server = grpc.server(ThreadPoolExecutor(4), options=[("grpc.so_reuseport", 0)])
        pb_grpc.add_WorkerServiceServicer_to_server(self, server)
        port = server.add_insecure_port("127.0.0.1:0")
        server.start()
        try:
            yield f"127.0.0.1:{port}"
        finally:
            self.hang_up()
            server.stop(0).wait()


class ExecutorUnderTest:
    """The process, as its agent would hold it."""

    def __init__(self, coordinator: str, state_dir: Path) -> None:
        record = Record.create()
        self._reader = RecordReader(record)
        self._state_dir = state_dir
        options = {"coordinator": coordinator, "state-dir": str(state_dir), "advertise": "127.0.0.1"}
        options |= {"device": "cpu", "transport": "auto", "record-fd": str(record.descriptor)}
        options |= {"orphan-seconds": str(ORPHAN_SECONDS)}
        self.process = subprocess.Popen(
            [sys.executable, "-m", "stage_worker", "executor", *(f"--{key}={value}" for key, value in options.items())],
            stdin=subprocess.PIPE,
            pass_fds=(record.descriptor,),
            start_new_session=True,
        )
        record.close_descriptor()
        self.log = state_dir / "jobs" / "a" / "logs" / "worker-0.log"

    def give_work(
        self,
        *,
        data_service: str,
        spec: dict[str, Any] | None = None,
        stages: tuple[pb.StageSlice, ...] = (pb.StageSlice(stage=0, first_layer=0, num_layers=2),),
    ) -> None:
        assignment = pb.Assignment(
            job="a",
            attempt=1,
            num_workers=1,
            spec_json=json.dumps(spec if spec is not None else SPEC),
            stages=stages,
            num_stages=len(stages),
            layers_by_stage=[stage.num_layers for stage in stages],
            pp_rank_by_stage=[0] * len(stages),
            total_steps=10,
            data_service=data_service,
            num_labels=2,
            labels=["no", "yes"],
            vocabulary_size=45,
        )
        self.log.parent.mkdir(parents=True)
        line = json.dumps({"log": str(self.log), "assignment": json_format.MessageToJson(assignment)})
        assert self.process.stdin is not None
        self.process.stdin.write(line.encode() + b"\n")
        self.process.stdin.flush()

    def snapshot(self) -> Snapshot:
        return self._reader.read()

    def close_stdin(self) -> None:
        assert self.process.stdin is not None
        self.process.stdin.close()

    def end(self) -> None:
        self.process.kill()
        self.process.wait()
        self.close_stdin()


def commands(
    *ops: "commands_pb2.Op",
    first_seq: int,
    step: int = 1,
    phase: "data_pb2.Phase" = data_pb2.PHASE_TRAIN,
    shapes: tuple[tuple[int, int], ...] = (),
    ends_step: bool = False,
    acknowledge: bool = False,
) -> commands_pb2.StepCommands:
    """Return commands of one step; the n-th forward or backward is about microbatch n."""
    seen: dict[int, int] = {}
    listed = []
    for op in ops:
        microbatch = seen.get(op, 0)
        seen[op] = microbatch + 1
        is_compute = op in (commands_pb2.OP_FORWARD, commands_pb2.OP_BACKWARD)
        listed.append(commands_pb2.Command(op=op, microbatch=microbatch if is_compute else 0))
    return commands_pb2.StepCommands(
        job="a",
        attempt=1,
        phase=phase,
        split="train" if phase == data_pb2.PHASE_TRAIN else "validation",
        step=step,
        first_seq=first_seq,
        denominator=sum(rows for rows, _ in shapes) or 1,
        microbatches=[data_pb2.MicrobatchShape(rows=rows, width=width) for rows, width in shapes],
        commands=listed,
        ends_step=ends_step,
        acknowledge=acknowledge,
    )
