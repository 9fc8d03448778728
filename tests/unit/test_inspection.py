"""What a coordinator asks about a job: its model's parts only where it is planned by them, and then after its data."""

from dataclasses import dataclass, field
from typing import Any, cast

import pytest
from takt.v1 import workers_pb2

from coordinator.agents import Agents
from coordinator.data_client import DataClient
from coordinator.facts import DataFacts, ModelFacts
from coordinator.inspection import inspect
from coordinator.parts import ModelPart, ModelParts
from coordinator.problem import Problem, SpecError
from coordinator.spec import JobSpec, parse_spec
from tests.unit.cli_facts import facts

pytestmark = pytest.mark.timeout(20)

PARTS = ModelParts(embeddings=ModelPart(), layer=ModelPart(parameters=100), head=ModelPart(), stage=ModelPart())


@dataclass
class Rooms:
    """Both rooms that are asked."""

    spec: JobSpec
    refused: SpecError | None = None
    asked: list[workers_pb2.PartsQuestion | None] = field(default_factory=list)

    async def model_facts(self, _: str, *, parts: Any, limit_seconds: float) -> ModelFacts:
        self.asked.append(parts)
        model, _data = facts(self.spec)
        return ModelFacts.of(
            workers_pb2.ModelFacts(
                model_type=model.model_type,
                num_layers=model.num_layers,
                hidden_size=model.hidden_size,
                max_positions=model.max_positions,
                parts=PARTS.message() if parts is not None else None,
            )
        )

    async def facts(self, _: str, *, limit_seconds: float) -> DataFacts:
        if self.refused is not None:
            raise self.refused
        return facts(self.spec)[1]


def rooms(**limits: object) -> Rooms:
    config = {"model_type": "bert"}
    return Rooms(parse_spec({"name": "a", "model": {"config": config}, "data": {"task": "demo"}, "limits": limits}))


async def ask(rooms: Rooms) -> Any:
    return await inspect(rooms.spec, agents=cast(Agents, rooms), data=cast(DataClient, rooms), limit_seconds=5)


async def test_job_that_is_planned_without_parts_asks_for_none() -> None:
    asked = rooms()
    assert (await ask(asked)).memory is None
    assert asked.asked == [None]


async def test_job_with_a_memory_limit_asks_for_parts_by_what_the_data_need() -> None:
    asked = rooms(device_memory_bytes="1GiB")
    job = await ask(asked)
    assert [each.parameters for each in job.memory] == [1200, 1200]
    assert asked.asked == [workers_pb2.PartsQuestion(num_labels=2, vocabulary_size=96, pad_token_id=0)]


async def test_job_beyond_its_memory_limit_is_refused() -> None:
    with pytest.raises(SpecError) as caught:
        await ask(rooms(device_memory_bytes=1000))
    assert [problem.key for problem in caught.value.problems] == ["limits.device_memory_bytes"]


async def test_job_whose_data_are_refused_asks_about_the_model_all_the_same() -> None:
    asked = rooms(device_memory_bytes="1GiB")
    asked.refused = SpecError([Problem("data", "has no split")])
    with pytest.raises(SpecError) as caught:
        await ask(asked)
    assert [str(problem) for problem in caught.value.problems] == ["data: has no split"]
    assert asked.asked == [None]
