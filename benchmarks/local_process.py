"""One process of a pool: reads a request a line from stdin, runs its part of a case, answers with one line of JSON."""

import json
import sys
import traceback
from collections.abc import Iterator
from dataclasses import asdict
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import save_file

from benchmarks.local_case import LocalCase
from benchmarks.local_run import LocalWorker, load_part
from stage_worker.comm import TransportName, join_transport
from stage_worker.comm_place import Place
from stage_worker.comm_store import address_of, join_store, open_store

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
    steps = [asdict(step) | {"phase": step.phase.name} for step in result.steps]
    return {
        "steps": steps,
        "seconds": result.seconds,
        "activities": result.activities,
        "parameters": result.parameters,
        "live_peak": result.live_peak,
        "live_at_end": result.live_at_end,
        "live_share_between_halves": result.live_share_between_halves,
    }


def answers(lines: Iterator[str]) -> Iterator[dict[str, Any]]:
    """Answer the requests of a pool, one a line."""
    stores = []
    for line in lines:
        request = json.loads(line)
        try:
            if request["do"] == "open_store":
                stores = [open_store(HOST)]  # lives until the next case
                yield {"address": address_of(stores[0])}
            else:
                case = LocalCase.from_json(request["case"])
                yield run_case(case, worker=request["worker"], address=request["address"], out=Path(request["out"]))
        except Exception as error:
            traceback.print_exc()
            yield {"error": f"{type(error).__name__}: {error}"}


def main() -> int:
    """Serve requests on stdin until it closes."""
    torch.set_num_threads(1)
    for answer in answers(iter(sys.stdin.readline, "")):
        print(json.dumps(answer), flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
