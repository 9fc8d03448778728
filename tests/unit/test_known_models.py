"""Which facts of a model are found once."""

import asyncio
import json
from collections.abc import Awaitable, Callable

import pytest
from takt.v1 import workers_pb2 as pb

from coordinator.agents import Agents
from coordinator.facts import ModelFacts
from coordinator.known_models import KnownModels
from coordinator.spec import parse_spec, to_json


def spec(*, layers: int = 2, precision: str = "fp32", name: str = "job", folder: str | None = None) -> str:
    model = {"pretrained": folder} if folder else {"config": {"model_type": "bert", "num_hidden_layers": layers}}
    train = {"precision": precision}
    return to_json(parse_spec({"name": name, "model": model, "data": {"task": "demo"}, "train": train}))


class Asked:
    """Agents of which one answers every question with its number."""

    def __init__(self) -> None:
        self.agents = Agents(clock=lambda: 0.0)
        self.questions: list[str] = []
        self.outbox = self.join("a", 0)

    def join(self, agent: str, slot: int) -> asyncio.Queue[pb.AttendResponse | None]:
        return self.agents.join(pb.AgentHello(agent=agent, host="h", slot=slot, device="cpu", pid=1))

    async def facts(self, text: str, parts: pb.PartsQuestion | None = None) -> ModelFacts:
        asking = asyncio.ensure_future(self.agents.model_facts(text, parts=parts, limit_seconds=5))
        for _ in range(3):
            await asyncio.sleep(0)
        while not self.outbox.empty():
            message = self.outbox.get_nowait()
            if message is not None and message.HasField("inspect_model"):
                self.questions.append(message.inspect_model.spec_json)
                answer = pb.ModelInspected(request=message.inspect_model.request)
                answer.facts.num_layers = len(self.questions)
                self.agents.inspected(answer)
        return await asking


async def test_model_from_a_config_is_asked_about_once() -> None:
    asked = Asked()
    first = await asked.facts(spec())
    assert await asked.facts(spec(name="another")) == first
    assert len(asked.questions) == 1


@pytest.mark.parametrize(
    "again",
    [
        lambda asked: asked.facts(spec(layers=3)),
        lambda asked: asked.facts(spec(precision="bf16")),
        lambda asked: asked.facts(spec(), pb.PartsQuestion(num_labels=2)),
        lambda asked: (asked.join("b", 1), asked.facts(spec()))[1],
    ],
)
async def test_what_facts_depend_on_is_asked_about_again(again: Callable[[Asked], Awaitable[ModelFacts]]) -> None:
    asked = Asked()
    await asked.facts(spec())
    assert (await again(asked)).num_layers == 2


async def test_folder_is_looked_at_each_time() -> None:
    asked = Asked()
    assert (await asked.facts(spec(folder="/models/one"))).num_layers == 1
    assert (await asked.facts(spec(folder="/models/one"))).num_layers == 2


def test_facts_found_longest_ago_are_forgotten() -> None:
    known = KnownModels()
    facts = ModelFacts.of(pb.ModelFacts(num_layers=1))
    for number in range(100):
        known.add(str(number), facts)
    assert [known.get(str(number)) is not None for number in (0, 35, 36, 99)] == [False, False, True, True]
    assert json.loads(KnownModels.key_of(spec(), None) or "null") is not None
