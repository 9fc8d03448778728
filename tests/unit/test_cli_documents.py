"""JSON records of jobs and slots: names as decided, nulls for the unknown, times in RFC 3339."""

import math

from takt.v1 import jobs_pb2 as pb

from coordinator.cli.documents import job_record, job_summary, rfc3339, slot_record

STATUS_FIELDS = (
    "id, name, state, reason, attempt, step, total_steps, epoch, loss, examples_per_second, eta_seconds, "
    "created, started, ended, workers, priority, start_step, missing_slots, error, history"
)
WORKER_FIELDS = "worker, stages, dp_rank, host, pid, state, parameters, last_progress"


def test_rfc3339_is_utc_to_the_millisecond() -> None:
    assert rfc3339(1_700_000_000.25) == "2023-11-14T22:13:20.250Z"


def test_job_record_of_a_queued_job_has_every_field_and_null_for_the_unknown() -> None:
    record = job_record(pb.Job(id="a-1", name="a", state=pb.JOB_STATE_QUEUED, reason="waits for 2 slots", created=0.0))
    assert set(record) == set(STATUS_FIELDS.split(", "))
    unknown = {name for name, value in record.items() if value is None}
    assert unknown == {"total_steps", "loss", "examples_per_second", "eta_seconds", "started", "ended", "error"}
    assert (record["state"], record["workers"], record["history"]) == ("QUEUED", [], [])
    assert record["created"] == "1970-01-01T00:00:00.000Z"


def test_job_record_of_a_failed_job_tells_worker_stage_step_and_log() -> None:
    job = pb.Job(
        id="a-1",
        state=pb.JOB_STATE_FAILED,
        step=2,
        total_steps=9,
        loss=0.5,
        workers=[pb.JobWorker(worker=1, stages=[1], host="h", pid=7, state="ended", parameters=10, last_progress=1.5)],
        error=pb.JobError(worker=1, stage=1, step=3, type="ValueError", message="boom", log="logs/worker-1.log"),
        history=[pb.StateChange(state=pb.JOB_STATE_FAILED, reason="boom", attempt=1, step=2, time=2.0)],
    )
    record = job_record(job)
    assert record["error"] == {
        "worker": 1,
        "stage": 1,
        "step": 3,
        "type": "ValueError",
        "message": "boom",
        "log": "logs/worker-1.log",
    }
    assert set(record["workers"][0]) >= set(WORKER_FIELDS.split(", "))
    assert record["workers"][0]["last_progress"] == "1970-01-01T00:00:01.500Z"
    assert record["history"] == [
        {"state": "FAILED", "reason": "boom", "attempt": 1, "step": 2, "time": "1970-01-01T00:00:02.000Z"}
    ]


def test_job_error_without_a_worker_says_null_not_zero() -> None:
    record = job_summary(pb.Job(error=pb.JobError(type="data", message="gone")))
    assert record["error"]["worker"] is None
    assert record["error"]["log"] is None


def test_job_summary_of_a_loss_that_is_no_number_says_null() -> None:
    assert job_summary(pb.Job(loss=math.nan))["loss"] is None
    assert job_summary(pb.Job(loss=0.0))["loss"] == 0.0


def test_slot_record_of_a_free_slot_has_no_job() -> None:
    record = slot_record(pb.Slot(host="h", slot=1, device="cpu", pid=5, state="free", last_heartbeat=1.0))
    assert (record["job"], record["worker"], record["stages"], record["parameters"]) == (None, None, [], None)
    assert record["last_heartbeat"] == "1970-01-01T00:00:01.000Z"
