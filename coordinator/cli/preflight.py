"""What is found out about a job before anything is started for it."""

from collections.abc import Iterable
from pathlib import Path

from coordinator.cli.console import print_remark
from coordinator.facts import DataFacts, ModelFacts
from coordinator.jobfile import load_job
from coordinator.layout import train_plan
from coordinator.local_facts import local_facts
from coordinator.planning import JobPlan, plan_job
from coordinator.pricing import foreign, given_costs
from coordinator.schedule.plan import Plan
from coordinator.spec import JobSpec


def check_job(job_file: Path, settings: Iterable[str], *, with_parts: bool = False) -> JobPlan:
    """Return the plan of a job whose every check has passed; the facts programs run for it, a few seconds.

    What its user should know of the plan is told on stderr. ``with_parts`` asks of the model's parts in any case.

    Raises:
        SpecError: the job cannot be run as it is written.
    """
    spec, model, data = look_at(job_file, settings, with_parts=with_parts)
    plan = plan_job(spec, model=model, data=data)
    print_notices(plan.train)
    return plan


def look_at(
    job_file: Path, settings: Iterable[str], *, with_parts: bool = False
) -> tuple[JobSpec, ModelFacts, DataFacts]:
    """Return a job and what is known of its model and data; ``with_parts`` of the model's parts in any case.

    What its user should know of its costs is told on stderr.

    Raises:
        SpecError: the job cannot be run as it is written.
    """
    spec = load_job(job_file, settings)
    if spec.schedule.file is not None:
        train_plan(spec)  # a plan that the user wrote has faults more often than the facts, and those take seconds
    model, data = local_facts(spec, with_parts=with_parts)
    costs = given_costs(spec, model)
    for difference in [] if costs is None else foreign(spec, costs):
        print_remark(f"notice: {difference}")
    return spec, model, data


def print_notices(plan: Plan) -> None:
    """Tell on stderr what a user of ``plan`` should know."""
    for notice in plan.notices:
        print_remark(f"notice: {notice}")
