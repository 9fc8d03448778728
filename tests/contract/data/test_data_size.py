"""What SST-2 costs a service: memory, and seconds of processor until its first batch."""

import os
from pathlib import Path

import pytest

from tests.contract.data.test_data_process import read_bytes, running
from tests.data_calls import add_job, sst2
from tests.data_jobs import minilm, real_glue

PROC = Path("/proc")


def most_bytes(process: int) -> int:
    lines = (PROC / str(process) / "status").read_text().splitlines()
    (peak,) = [line.split()[1] for line in lines if line.startswith("VmHWM:")]
    return int(peak) * 1024


def processor_seconds(process: int) -> float:
    """Return what a process has used so far; seconds of the clock would count what else the machine does."""
    fields = (PROC / str(process) / "stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


@pytest.mark.real_glue
@pytest.mark.timeout(120)
@pytest.mark.skipif(not PROC.is_dir(), reason="needs /proc")
@pytest.mark.parametrize("microbatching", ["in_order", "length_balanced"])
def test_sst2_takes_little_memory_and_its_second_service_does_not_tokenise(tmp_path: Path, microbatching: str) -> None:
    add_job(tmp_path, "job", sst2(real_glue(), data__tokenizer=str(minilm()), data__microbatching=microbatching))
    batches, peaks, seconds = [], [], []
    for _ in range(2):
        with running(tmp_path) as (process, announced):
            before = processor_seconds(process.pid)
            batches.append(read_bytes(announced.address, "job", 1))
            seconds.append(processor_seconds(process.pid) - before)
            peaks.append(most_bytes(process.pid))

    assert batches[0] == batches[1]
    assert len(batches[0]) == 8
    assert max(peaks) < 2**30
    assert seconds[0] < 10
    assert seconds[1] < 0.5 < seconds[0]
