"""The processes of a pool: one that forks the others, which take requests, run their part of a case, and answer.

A request and an answer is one message of JSON. Forking is safe because nothing here has threads before it.
"""

import json
import os
import signal
import socket
import sys
import traceback
from contextlib import suppress
from dataclasses import asdict, replace
from importlib import import_module
from multiprocessing.connection import Connection
from pathlib import Path
from types import FrameType
from typing import Any

import torch
from safetensors.torch import save_file

from benchmarks.local_case import LocalCase
from benchmarks.local_run import LocalWorker, load_part
from stage_worker.comm import TransportName, join_transport
from stage_worker.comm_place import Place
from stage_worker.comm_store import join_store, open_store
from stage_worker.models.families import FAMILIES

HOST = "127.0.0.1"
LIMIT_SECONDS = 60.0


def run_case(case: LocalCase, *, worker: int, address: str, out: Path) -> dict[str, Any]:
    """Run one worker of ``case``, meet the others in the store at ``address``, write tensors to ``out``."""
    place = Place(worker=worker, pp=case.pp, dp=case.dp)
    store = join_store(address, limit_seconds=LIMIT_SECONDS)
    model = load_part(case, place)
    transport = join_transport(
        TransportName.GLOO,
        store,
        place=place,
        pp_rank_by_stage=case.train_plan().placement.worker_by_stage,
        shared_pairs=(),  # Gloo needs to know none
        job="local",
        attempt=1,
        host=HOST,
        device=torch.device("cpu"),
        limit_seconds=LIMIT_SECONDS,
    )
    try:
        result = LocalWorker(case, place, model, transport).run()
    finally:
        transport.close()
    save_file({name: tensor.contiguous() for name, tensor in result.tensors.items()}, out)
    # When what crossed is of no use here, and has types of its own.
    steps = [asdict(replace(step, transfers=())) | {"phase": step.phase.name} for step in result.steps]
    return {
        "steps": steps,
        "seconds": result.seconds,
        "resident_bytes": result.resident_bytes,
        "activities": result.activities,
        "parameters": result.parameters,
        "live_peak": result.live_peak,
        "live_at_end": result.live_at_end,
        "live_share_between_halves": result.live_share_between_halves,
    }


def serve(connection: Connection) -> None:
    """Answer a pool's requests until it is gone."""
    store = None
    while True:
        try:
            request = json.loads(connection.recv_bytes())
        except EOFError:
            return
        try:
            if request["do"] == "open_store":
                store = open_store(HOST, limit_seconds=LIMIT_SECONDS)  # lives until the next case
                answer: dict[str, Any] = {"address": store.address}
            else:
                case = LocalCase.from_json(request["case"])
                answer = run_case(case, worker=request["worker"], address=request["address"], out=Path(request["out"]))
        except Exception as error:
            traceback.print_exc()
            answer = {"error": f"{type(error).__name__}: {error}"}
        connection.send_bytes(json.dumps(answer).encode())


def main() -> int:
    """Import all that a worker needs, then fork one for each connection that stdin brings, until it closes."""
    torch.set_num_threads(1)
    for name in FAMILIES:
        import_module(f"stage_worker.models.{name}")
    signal.signal(signal.SIGCHLD, _tell_of_ends)
    with socket.socket(fileno=os.dup(sys.stdin.fileno())) as control:
        while True:
            said, handles, _, _ = socket.recv_fds(control, 1, 1)
            if not said:
                return 0
            if os.fork() == 0:
                signal.signal(signal.SIGCHLD, signal.SIG_DFL)
                break
            os.close(handles[0])
    serve(Connection(handles[0]))
    return 0


def _tell_of_ends(number: int, frame: FrameType | None) -> None:
    """Say how a worker ended; the pool is no parent of it and sees only that it did."""
    with suppress(ChildProcessError):
        while (ended := os.waitpid(-1, os.WNOHANG))[0]:
            print(f"worker {ended[0]} ended with {os.waitstatus_to_exitcode(ended[1])}", file=sys.stderr, flush=True)


if __name__ == "__main__":
    sys.exit(main())
