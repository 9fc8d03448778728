"""Progress and summary of `takt run` as text."""

import io
import itertools
import re
from pathlib import Path

from rich.console import Console
from takt.v1 import jobs_pb2 as pb

from coordinator.cli.progress import BarProgress, LineProgress
from coordinator.cli.summary import summary_lines
from coordinator.cli.tables import duration, show_job, show_jobs


def running(step: int) -> pb.Job:
    return pb.Job(
        id="j",
        state=pb.JOB_STATE_RUNNING,
        reason="2 workers are ready",
        step=step,
        total_steps=200,
        loss=0.69314,
        examples_per_second=42.14,
        eta_seconds=65,
    )


def test_line_progress_prints_changes_of_state_at_once_and_steps_every_ten_seconds() -> None:
    out, now = io.StringIO(), 0.0
    progress = LineProgress(Console(file=out, width=60), now=lambda: now)
    progress.show(pb.Job(state=pb.JOB_STATE_QUEUED, reason="waits for 2 slots"))
    for now in (0.5, 1.0, 5.0, 10.4, 10.6, 12.0, 20.7):
        progress.show(running(step=int(now * 10)))
    assert out.getvalue().splitlines() == [
        "QUEUED: waits for 2 slots",
        "RUNNING: 2 workers are ready",
        "RUNNING step 106/200, loss 0.6931, 42.1 examples/s, ETA 1m05s",
        "RUNNING step 207/200, loss 0.6931, 42.1 examples/s, ETA 1m05s",
    ]


def test_progress_summary_and_status_tell_the_steps_that_were_skipped(tmp_path: Path) -> None:
    job = running(step=120)
    job.skipped_steps = 2
    out, times = io.StringIO(), itertools.count(step=11.0)
    progress = LineProgress(Console(file=out, width=60), now=lambda: next(times))
    progress.show(job)
    progress.show(job)
    assert "RUNNING step 120/200 (2 skipped), loss 0.6931, 42.1 examples/s, ETA 1m05s" in out.getvalue().splitlines()
    show_job(Console(file=out, width=100), job)
    assert "120/200 (2 skipped), epoch 0" in out.getvalue()
    bar = io.StringIO()
    on_terminal = BarProgress(Console(file=bar, width=80, force_terminal=True, color_system=None))
    on_terminal.show(job)
    on_terminal.close()
    assert "step 120/200 (2 skipped)" in bar.getvalue()
    job.state, job.started, job.ended = pb.JOB_STATE_SUCCEEDED, 100.0, 183.0
    assert "  steps       120/200 (2 skipped) in 1m23s" in summary_lines(job, folder=tmp_path)


def test_line_progress_is_silent_while_no_step_is_done() -> None:
    out, times = io.StringIO(), itertools.count(step=11.0)
    progress = LineProgress(Console(file=out, width=60), now=lambda: next(times))
    for _ in range(3):
        progress.show(pb.Job(state=pb.JOB_STATE_STARTING, reason="2 workers load", step=0, total_steps=200))
    assert out.getvalue().splitlines() == ["STARTING: 2 workers load"]


def test_list_of_jobs_cuts_a_reason_in_a_narrow_terminal_rather_than_fold_it() -> None:
    job = pb.Job(id="a-job-of-24-letters-0001", state=pb.JOB_STATE_SUCCEEDED, step=345, total_steps=345, loss=0.1)
    job.reason = "all 345 steps are done"
    narrow, wide = io.StringIO(), io.StringIO()
    show_jobs(Console(file=narrow, width=80), [job, job])
    show_jobs(Console(file=wide, width=200), [job, job])
    assert [line.partition("  ")[0] for line in narrow.getvalue().splitlines()] == ["ID", job.id, job.id]
    assert wide.getvalue().count(job.reason) == 2


def test_bar_progress_fits_one_line_of_an_80_column_terminal() -> None:
    out = io.StringIO()
    console = Console(file=out, width=80, force_terminal=True, color_system=None, legacy_windows=False)
    progress = BarProgress(console)
    progress.show(running(step=120))
    progress.close()
    lines = re.sub(r"\x1b\[[?\d]*\w", "", out.getvalue()).replace("\r", "\n").splitlines()
    bars = [line for line in lines if "━" in line]
    assert bars[-1].endswith("step 120/200 loss 0.6931 42.1 examples/s ETA 1m05s")
    assert max(map(len, lines)) <= 80
    assert "RUNNING: 2 workers are ready" in [line.rstrip() for line in lines]


def test_duration_is_told_in_its_two_largest_units() -> None:
    assert [duration(seconds) for seconds in (0.04, 59.9, 60, 125.4, 7380)] == [
        "0.0s",
        "59.9s",
        "1m00s",
        "2m05s",
        "2h03m",
    ]


def test_summary_of_a_success_tells_loss_metrics_planned_and_busy_shares_and_files(tmp_path: Path) -> None:
    folder = tmp_path / "jobs" / "j"
    folder.mkdir(parents=True)
    (folder / "eval.jsonl").write_text(
        '{"step": 200, "split": "validation", "examples": 872, "loss": 0.28731, "accuracy": 0.90123}\n'
    )
    job = pb.Job(
        id="j",
        state=pb.JOB_STATE_SUCCEEDED,
        reason="all steps done",
        step=200,
        total_steps=200,
        loss=0.3121,
        started=100.0,
        ended=183.0,
        plan_bubble_fraction=0.25,
        workers=[
            pb.JobWorker(worker=0, stages=[0], busy_seconds=6, idle_seconds=4),
            pb.JobWorker(worker=1, stages=[1], busy_seconds=7, idle_seconds=3, stage_busy_seconds=[7]),
        ],
    )
    assert summary_lines(job, folder=folder) == [
        "job j SUCCEEDED at step 200: all steps done",
        "  steps       200/200 in 1m23s",
        "  final loss  0.3121",
        "  validation  accuracy 0.9012, loss 0.2873 (872 rows, after step 200)",
        "  worker 0    stage 0: busy 60% (planned 75%)",
        "  worker 1    stage 1: busy 70% (planned 75%)",
        f"  files       {folder}",
        f"  next        takt export j --state-dir {tmp_path} --out DIR",
    ]


def test_summary_of_workers_with_several_stages_tells_the_share_of_each(tmp_path: Path) -> None:
    job = pb.Job(
        id="j",
        state=pb.JOB_STATE_SUCCEEDED,
        plan_bubble_fraction=0.06,
        workers=[
            pb.JobWorker(worker=0, stages=[0, 3], busy_seconds=9, idle_seconds=1, stage_busy_seconds=[4, 5]),
            pb.JobWorker(worker=1, stages=[1, 2]),
        ],
    )
    lines = summary_lines(job, folder=tmp_path)
    assert "  worker 0    stages 0, 3: busy 90%, by stage 40%, 50% (planned 94%)" in lines
    assert "  worker 1    stages 1, 2: no step done" in lines


def test_summary_of_a_job_whose_coordinator_was_killed_does_not_deny_its_steps(tmp_path: Path) -> None:
    """The workers' times were in the coordinator's memory, the steps are in the store."""
    job = pb.Job(id="j", state=pb.JOB_STATE_FAILED, step=21, workers=[pb.JobWorker(worker=0, stages=[0])])
    lines = summary_lines(job, folder=tmp_path)
    assert "  worker 0    stage 0: its times are not known" in lines


def test_summary_of_a_failure_tells_place_exception_and_the_end_of_the_log(tmp_path: Path) -> None:
    (tmp_path / "logs").mkdir()
    log = tmp_path / "logs" / "worker-1.log"
    log.write_text("".join(f"line {number}\n" for number in range(100)))
    job = pb.Job(
        id="j",
        state=pb.JOB_STATE_FAILED,
        reason="worker 1 raised",
        step=1,
        error=pb.JobError(worker=1, stage=1, step=2, type="ValueError", message="boom", log="logs/worker-1.log"),
    )
    lines = summary_lines(job, folder=tmp_path)
    assert "error: worker 1, stage 1, step 2: ValueError: boom" in lines
    assert f"log: {log}, its last lines:" in lines
    assert lines[-15:] == [f"  | line {number}" for number in range(85, 100)]


def test_summary_of_an_undefined_metric_tells_why(tmp_path: Path) -> None:
    (tmp_path / "eval.jsonl").write_text(
        '{"step": 1, "split": "validation", "examples": 2, "loss": null, "f1": null, "reason": "one class only"}\n'
    )
    lines = summary_lines(pb.Job(id="j", state=pb.JOB_STATE_SUCCEEDED), folder=tmp_path)
    assert "  validation  f1 undefined, loss undefined (2 rows, after step 1; undefined: one class only)" in lines
