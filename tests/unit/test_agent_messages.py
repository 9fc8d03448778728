"""What of a spec an agent refuses to read."""

import json
from pathlib import Path

import pytest

from stage_worker.agent_messages import refused_model


def spec(*, pretrained: str | None = None, origin: str | None = None) -> str:
    return json.dumps({"model": {"pretrained": pretrained}, "checkpoint": {"from": origin}})


@pytest.mark.parametrize(
    ("text", "key"),
    [
        (spec(pretrained="/elsewhere/bert"), "model.pretrained"),
        (spec(pretrained="/models/bert", origin="/elsewhere/weights"), "checkpoint.from"),
        (spec(origin="/models/../elsewhere"), "checkpoint.from"),
    ],
)
def test_weights_outside_the_roots_are_refused_by_key(text: str, key: str) -> None:
    refused = refused_model(text, allow_roots=[Path("/models")])
    assert refused is not None
    assert refused.startswith(f"{key} is /")
    assert refused.endswith("which is under no --allow-root of this agent (/models)")


@pytest.mark.parametrize("origin", [None, "/models/weights", "a-job", "a-job@12"])
def test_weights_below_a_root_and_states_of_jobs_are_read(origin: str | None) -> None:
    assert refused_model(spec(pretrained="/models/bert", origin=origin), allow_roots=[Path("/models")]) is None
