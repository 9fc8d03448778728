"""Where the loss of a step is shown: wherever that is, it is what the worker of the last stage told."""

import asyncio
import json
from pathlib import Path
from urllib.request import urlopen

import pytest
from coordinator_rig import CALL_SECONDS, rig, spec_json
from structlog.testing import capture_logs
from takt.v1 import jobs_pb2


@pytest.mark.parametrize("pp", [2, 4])
async def test_h22_loss_in_status_log_and_metrics_is_the_last_stage_s(pp: int, *, tmp_path: Path) -> None:
    """Loss sums of step s are s and s + 1, over 8 rows; workers of other stages tell none.

    That what the last stage tells is the loss of one process, the tests of parity hold.
    """
    with capture_logs() as log:
        async with rig(tmp_path) as world:
            world.behaviour.hang_at = (0, 4)
            await world.add_agents(pp)
            text = spec_json(parallel={"pp": pp}, train={"max_steps": 4}, eval={"at_end": False})
            await world.submit(text, job="job")
            seen = []
            status = await world.until("job", lambda job: bool(seen.append((job.step, job)) or job.step == 3))
            with await asyncio.to_thread(urlopen, f"http://{world.metrics_address}/metrics", timeout=5) as page:
                metrics = page.read().decode().splitlines()
            await world.jobs.CancelJob(jobs_pb2.CancelJobRequest(id="job", grace_seconds=0.1), timeout=CALL_SECONDS)
            ended = await world.until_over("job")

    by_step = {1: 3 / 8, 2: 5 / 8, 3: 7 / 8}
    for step, job in seen:
        assert (job.loss if job.HasField("loss") else None) == by_step.get(step)
    assert status.loss == ended.loss == 7 / 8
    steps = [json.loads(line) for line in (tmp_path / "jobs/job/steps.jsonl").read_text().splitlines()]
    assert [(step["step"], step["loss"]) for step in steps] == list(by_step.items())
    told = [(line["step"], line["loss"]) for line in log if line["event"] == "step committed"]
    assert told == list(by_step.items())
    assert [line for line in metrics if line.startswith("takt_loss{")] == ['takt_loss{run="job"} 0.875']
