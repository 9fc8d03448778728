"""The executor's process: imports, waits for its work, does it, leaves."""

import json
import os
import sys

import structlog
import torch
from google.protobuf import json_format
from takt.rpc import logs
from takt.v1 import workers_pb2 as pb

from stage_worker.executor_config import ExecutorConfig
from stage_worker.executor_job import job_of
from stage_worker.executor_lifeline import Lifeline
from stage_worker.executor_run import ExecutorRun
from stage_worker.models.families import SUPPORTED, family_of
from stage_worker.record import Record, RecordWriter

log = structlog.get_logger()


def run_executor(config: ExecutorConfig) -> int:
    """Be an executor; never returns normally, for an interpreter that shuts down may wait for a dead peer."""
    lifeline = Lifeline()
    record = RecordWriter(Record(config.record_fd))
    if "OMP_NUM_THREADS" not in os.environ:
        torch.set_num_threads(1)
    # Every communicator has a stream of its own, and a receive that waits on one must not hold up the
    # others. CUDA folds all streams into 8 queues where nobody asks for more; a worker of a V has 11.
    os.environ.setdefault("CUDA_DEVICE_MAX_CONNECTIONS", "32")
    for model_type, objectives in SUPPORTED.items():
        for objective in objectives:
            family_of(model_type, objective)  # what takes seconds is done before the work comes
    work = json.loads(lifeline.work())
    _write_to(work["log"])
    logs.configure(service="executor")
    assignment = json_format.Parse(work["assignment"], pb.Assignment())
    log.info(
        "executor begins",
        job=assignment.job,
        attempt=assignment.attempt,
        worker=assignment.worker,
        stages=[part.stage for part in assignment.stages],
        pid=os.getpid(),
    )
    code = _run(config, assignment, record)
    log.info("executor ends", code=code)
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(code)


def _run(config: ExecutorConfig, assignment: pb.Assignment, record: RecordWriter) -> int:
    try:
        run = ExecutorRun(config, job_of(assignment), record)
    except Exception:
        log.exception("executor could not begin")
        return 1
    return run.run()


def _write_to(log_file: str) -> None:
    """Send everything that this process and its libraries print to the job's log from now on."""
    descriptor = os.open(log_file, os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC, 0o644)
    os.dup2(descriptor, 1)
    os.dup2(descriptor, 2)
    os.close(descriptor)
