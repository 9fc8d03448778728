"""Asks other rooms about a job's model and data, and plans it."""

import asyncio
from dataclasses import dataclass

from coordinator.agents import Agents
from coordinator.data_client import DataClient
from coordinator.facts import DataFacts, ModelFacts, parts_question
from coordinator.parts import wants_parts
from coordinator.planning import JobPlan, plan_job
from coordinator.problem import SpecError
from coordinator.spec import JobSpec, to_json


async def inspect(spec: JobSpec, *, agents: Agents, data: DataClient, limit_seconds: float) -> JobPlan:
    """Return the plan of a job that can run.

    Raises:
        SpecError: it cannot, as it is written.
        UnreachableError: no agent, or no data service, answered in time.
    """
    text = to_json(spec)
    rows_found = asyncio.ensure_future(data.facts(text, limit_seconds=limit_seconds))

    async def model_found() -> ModelFacts:
        parts = None
        if wants_parts(spec):
            # Sizes depend on the data; where there are none, the model may still be wrong.
            await asyncio.wait([rows_found])
            parts = parts_question(rows_found.result()) if rows_found.exception() is None else None
        return await agents.model_facts(text, parts=parts, limit_seconds=limit_seconds)

    found = await asyncio.gather(model_found(), rows_found, return_exceptions=True)
    problems = [problem for each in found if isinstance(each, SpecError) for problem in each.problems]
    if problems:
        raise SpecError(problems)
    model, rows = found
    if isinstance(model, BaseException):
        raise model
    if isinstance(rows, BaseException):
        raise rows
    # A large plan takes seconds, and heartbeats must be heard meanwhile.
    return await asyncio.to_thread(plan_job, spec, model=model, data=rows)


@dataclass(frozen=True, slots=True)
class Facts:
    """What was found out about a job."""

    model: ModelFacts
    data: DataFacts
