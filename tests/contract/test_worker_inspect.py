"""Facts about a model, asked of a process of their own."""

import json
import sys
from typing import Any

import pytest
from takt.v1 import workers_pb2 as pb

from stage_worker.agent_inspect import inspect_model

pytestmark = pytest.mark.timeout(60)


def question(config: dict[str, Any]) -> pb.InspectModel:
    spec = {"model": {"pretrained": None, "config": config}, "train": {"objective": "classification"}}
    return pb.InspectModel(request="7", spec_json=json.dumps(spec))


async def test_inspect_model_answers_with_facts() -> None:
    answer = await inspect_model(question({"model_type": "bert", "num_hidden_layers": 5}))
    assert (answer.request, answer.error) == ("7", "")
    assert (answer.facts.num_layers, answer.facts.max_positions) == (5, 512)


async def test_inspect_model_that_is_asked_for_its_parts_answers_with_them_too() -> None:
    asked = question({"model_type": "bert", "num_hidden_layers": 2, "hidden_size": 12, "vocab_size": 50})
    asked.spec_json = json.dumps(
        {
            "model": {**json.loads(asked.spec_json)["model"], "attention": "sdpa"},
            "train": {"objective": "classification", "precision": "fp32"},
        }
    )
    asked.parts.num_labels, asked.parts.vocabulary_size, asked.parts.pad_token_id = 3, 50, 0
    answer = await inspect_model(asked)
    assert answer.error == ""
    parts = answer.facts.parts
    # words, 512 positions, two types, and a norm; the pooler and three outputs
    assert parts.embeddings.parameters == 12 * (50 + 512 + 2) + 2 * 12
    assert parts.head.parameters == 12 * 12 + 12 + 3 * 12 + 3
    assert parts.layer.forward_operations.row_linear > 0


async def test_inspect_model_that_is_refused_answers_with_the_reason_alone() -> None:
    answer = await inspect_model(question({"model_type": "t5"}))
    assert not answer.HasField("facts")
    assert answer.error.startswith("model_type 't5' is not supported")


async def test_inspect_model_that_takes_too_long_is_ended() -> None:
    slow = (sys.executable, "-c", "import time; time.sleep(60)")
    answer = await inspect_model(question({}), command=slow, limit_seconds=0.2)
    assert "longer than 0.2 s" in answer.error


async def test_inspect_model_that_crashes_answers_with_its_last_line() -> None:
    broken = (sys.executable, "-c", "raise SystemExit('no space left')")
    assert (await inspect_model(question({}), command=broken)).error == "no space left"
