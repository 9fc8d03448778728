"""What is found out about a job before anything is started for it."""

from collections.abc import Iterable
from pathlib import Path

from coordinator.jobfile import load_job
from coordinator.local_facts import local_facts
from coordinator.planning import JobPlan, plan_job


def check_job(job_file: Path, settings: Iterable[str]) -> JobPlan:
    """Return the plan of a job whose every check has passed; the facts programs run for it, a few seconds.

    Raises:
        SpecError: the job cannot be run as it is written.
        PlanError: its schedule cannot be planned.
    """
    spec = load_job(job_file, settings)
    model, data = local_facts(spec)
    return plan_job(spec, model=model, data=data)
