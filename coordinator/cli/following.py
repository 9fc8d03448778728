"""Log lines followed to the end of a job, over restarts of its coordinator."""

import time
from collections.abc import Callable, Iterator

from takt.v1 import jobs_pb2 as pb

from coordinator.cli.client import CallError, JobClient, Pause
from coordinator.cli.outcome import ABSENCE_SECONDS, POLL_SECONDS


def follow_logs(
    client: JobClient,
    job_id: str,
    *,
    stage: int | None,
    tail: int | None,
    pause: Pause = time.sleep,
    now: Callable[[], float] = time.monotonic,
) -> Iterator[pb.ReadLogsResponse]:
    """Yield every log line once until the job has ended.

    A coordinator that is away is asked again for `ABSENCE_SECONDS`, and goes on behind the last line of each worker.

    Raises:
        CallError: it stayed away, or answered with an error.
    """
    positions: dict[int, int] = {}
    if tail == 0:  # where each log ends now is what its last line says
        positions = {line.worker: line.end for line in client.logs(job_id, stage=stage, tail=1)}
        tail = None
    while True:
        try:
            for line in client.logs(job_id, stage=stage, tail=tail, follow=True, positions=positions):
                positions[line.worker] = line.end
                yield line
        except CallError as error:
            if not error.is_passing:
                raise
        else:
            return
        if positions:
            tail = None  # a worker that has said nothing so far has nothing but new lines
        _wait_for(client, job_id, pause=pause, now=now)


def _wait_for(client: JobClient, job_id: str, *, pause: Pause, now: Callable[[], float]) -> None:
    """Return once the coordinator answers again."""
    since = now()
    while True:
        pause(POLL_SECONDS)
        try:
            client.job(job_id)
        except CallError as error:
            if not error.is_passing or now() - since > ABSENCE_SECONDS:
                raise
        else:
            return
