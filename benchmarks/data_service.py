"""What the data service sustains on SST-2, beside what two stage workers consume, and how soon it serves a first batch.

    python -m benchmarks.data_service --glue FOLDER --tokenizer FOLDER --consumed 40

One service process; one caller describes every step and reads all of its columns, one step after the other, so the
caller's own time counts as the service's. Batches of 32 rows, 8 microbatches, one replica. `--consumed` is the
examples/s that the workers train on: `takt run` prints it. Exits 1 where a promise is not kept.
"""

import argparse
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from takt.rpc.client import channel
from takt.rpc.lifecycle import parse_announcement
from takt.v1 import data_pb2 as pb
from takt.v1.data_pb2_grpc import DataServiceStub

from coordinator.spec import parse_spec, to_json

COLUMNS = ("input_ids", "token_type_ids", "attention_mask", "labels")
MICROBATCHING = ("in_order", "length_balanced")
TIMES_CONSUMED = 20
COLD_SECONDS, KEPT_SECONDS = 10.0, 2.0
MOST_BYTES = 2**30
_CALL_SECONDS = 120.0


class Promises:
    """Prints measurements beside their limits."""

    def __init__(self) -> None:
        self.are_kept = True

    def show(self, what: str, value: str, *, kept: bool, limit: str) -> None:
        """Print one line."""
        self.are_kept &= kept
        print(f"{what:<32}{value:>10}   {limit}{'' if kept else '   NOT KEPT'}", flush=True)


@contextmanager
def service(state: Path) -> Iterator[tuple[DataServiceStub, int]]:
    """Run a data service over a state folder; the value is a client and the process id."""
    arguments = ("--listen", "127.0.0.1:0", "--metrics-port", "0", "--state-dir", str(state), "--exit-with-stdin")
    command = [sys.executable, "-m", "dataloader_svc", *arguments]
    with subprocess.Popen(
        command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True
    ) as process:
        try:
            assert process.stdout is not None
            announced = parse_announcement(process.stdout.readline())
            if announced is None or announced.address is None:
                raise RuntimeError("the data service did not start")
            with channel(announced.address) as opened:
                yield DataServiceStub(opened), process.pid
        finally:
            process.kill()


def read(stub: DataServiceStub, job: str, step: int) -> int:
    """Read one step; return its rows."""
    request = pb.ReadStepRequest(job=job, phase=pb.PHASE_TRAIN, split="train", step=step, columns=COLUMNS)
    answers = stub.ReadStep(request, timeout=_CALL_SECONDS)
    return sum(len(microbatch.row_ids) for answer in answers for microbatch in answer.microbatches)


def describe(stub: DataServiceStub, job: str, step: int) -> None:
    """Ask for the shapes of one step."""
    request = pb.DescribeStepsRequest(job=job, phase=pb.PHASE_TRAIN, split="train", first=step, count=1)
    stub.DescribeSteps(request, timeout=_CALL_SECONDS)


def first_batch(state: Path) -> tuple[float, float, int]:
    """Return the seconds until a service's first batch, those of its processor, and the most bytes that it held."""
    with service(state) as (stub, process):
        started, started_cpu = time.perf_counter(), processor_seconds(process)
        read(stub, MICROBATCHING[0], 1)
        seconds, cpu_seconds = time.perf_counter() - started, processor_seconds(process) - started_cpu
        return seconds, cpu_seconds, most_bytes(process)


def processor_seconds(process: int) -> float:
    """Return what a process has used of its processors; more of the clock's seconds are the machine's other work."""
    fields = Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def most_bytes(process: int) -> int:
    """Return the most memory that a process has held."""
    status = Path(f"/proc/{process}/status").read_text()
    (peak,) = [line.split()[1] for line in status.splitlines() if line.startswith("VmHWM:")]
    return int(peak) * 1024


def examples_per_second(stub: DataServiceStub, job: str, *, num_steps: int) -> float:
    """Return how many rows one caller gets; the first step is left out, which may load the split."""
    read(stub, job, 1)
    started, num_rows = time.perf_counter(), 0
    for step in range(2, num_steps + 2):
        describe(stub, job, step)
        num_rows += read(stub, job, step)
    return num_rows / (time.perf_counter() - started)


def add_job(state: Path, glue: Path, tokenizer: Path, microbatching: str, *, batch: int) -> None:
    """Write the job that is named by how its rows fall into microbatches."""
    spec = parse_spec(
        {
            "name": microbatching,
            "model": {"config": {"model_type": "bert"}},
            "data": {
                "task": "sst2",
                "source": str(glue.absolute()),
                "tokenizer": str(tokenizer.absolute()),
                "microbatching": microbatching,
            },
            "parallel": {"pp": 2},
            "schedule": {"name": "1f1b", "num_microbatches": 8},
            "train": {"global_batch_size": batch},
        }
    )
    folder = state / "jobs" / microbatching
    folder.mkdir(parents=True)
    (folder / "spec.json").write_text(to_json(spec))


def main(arguments: list[str] | None = None) -> int:
    """Print one line a measurement."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--glue", type=Path, required=True, help="folder in the GLUE layout")
    parser.add_argument("--tokenizer", type=Path, required=True, help="folder of a BERT's tokenizer")
    parser.add_argument("--consumed", type=float, default=40.0, help="examples/s that two stage workers train on")
    parser.add_argument("--steps", type=int, default=500)
    parser.add_argument("--batch", type=int, default=32)
    chosen = parser.parse_args(arguments)
    promises = Promises()
    with tempfile.TemporaryDirectory(prefix="takt-data-") as folder:
        state = Path(folder)
        for microbatching in MICROBATCHING:
            add_job(state, chosen.glue, chosen.tokenizer, microbatching, batch=chosen.batch)
        for name, limit in (("cold", COLD_SECONDS), ("tokens on disk", KEPT_SECONDS)):
            seconds, cpu_seconds, peak = first_batch(state)
            limits = f"< {limit:g} s; {cpu_seconds:.2f} s of processor"
            promises.show(f"first batch, {name}", f"{seconds:.2f} s", kept=seconds < limit, limit=limits)
            promises.show(
                f"memory, {name}", f"{peak / 2**20:.0f} MiB", kept=peak < MOST_BYTES, limit=f"< {MOST_BYTES >> 20} MiB"
            )
        least = TIMES_CONSUMED * chosen.consumed
        with service(state) as (stub, _):
            for microbatching in MICROBATCHING:
                rate = examples_per_second(stub, microbatching, num_steps=chosen.steps)
                times = f"> {least:g}; {rate / chosen.consumed:.0f} x {chosen.consumed:g} that workers consume"
                promises.show(f"examples/s, {microbatching}", f"{rate:.0f}", kept=rate > least, limit=times)
    return 0 if promises.are_kept else 1


if __name__ == "__main__":
    sys.exit(main())
