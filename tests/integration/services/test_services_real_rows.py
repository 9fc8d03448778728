"""Real input: a pretrained BERT on SST-2, where only the plan or the grouping of rows differs between jobs."""

from typing import Any

import pytest

from benchmarks.plain_training import save_without_dropout
from tests.data_jobs import minilm, real_glue
from tests.integration.services.job_files import write_job
from tests.integration.services.standing import Standing, lines_of

pytestmark = [pytest.mark.real_glue, pytest.mark.timeout(400)]

END_SECONDS = 300.0
NUM_STEPS = 8
NUM_STEPS_OF_A_SCHEDULE = 3
SCHEDULES: dict[str, dict[str, Any]] = {
    "interleaved": {"name": "interleaved", "num_chunks": 3},
    "zbh1": {"name": "zbh1"},
    "zbv": {"name": "zbv", "num_chunks": 2},
}


@pytest.fixture(scope="module")
def steps(_four_slots: Standing, tmp_path_factory: pytest.TempPathFactory) -> dict[str, list[dict[str, Any]]]:
    """Return the steps of a job under 1f1b in order, of the same regrouped, and of the same under each schedule."""
    up, folder = _four_slots, tmp_path_factory.mktemp("real-rows")
    save_without_dropout(minilm(), folder / "model")
    jobs: dict[str, dict[str, Any]] = {
        "1f1b": {},
        "regrouped": {"microbatching": "length_balanced"},
        **{name: {"schedule": keys} for name, keys in SCHEDULES.items()},
    }
    for name, own in jobs.items():
        data = {"task": "sst2", "source": str(real_glue()), "record_rows": True}
        num_steps = NUM_STEPS_OF_A_SCHEDULE if name in SCHEDULES else NUM_STEPS
        changes = {
            "model": {"pretrained": str(folder / "model")},
            "data": data | ({"microbatching": own["microbatching"]} if "microbatching" in own else {}),
            "schedule": {"num_microbatches": 8, **own.get("schedule", {})},
            "train": {
                "max_steps": num_steps,
                "global_batch_size": 32,
                "learning_rate": 5e-5,
                "lr_schedule": "constant",
            },
        }
        up.submit(write_job(folder / f"{name}.yaml", changes), f"sst2-{name}")
    found = {}
    for name in jobs:
        status = up.end_of(f"sst2-{name}", limit_seconds=END_SECONDS)
        assert status["state"] == "SUCCEEDED", status["reason"]
        found[name] = lines_of(up.folder(f"sst2-{name}") / "steps.jsonl")
    return found


@pytest.mark.parametrize("schedule", SCHEDULES)
def test_schedule_gives_the_losses_of_1f1b_bit_for_bit(steps: dict[str, list[dict[str, Any]]], schedule: str) -> None:
    found, expected = (
        [(step["loss"], step["grad_norm"], step["rows"]) for step in steps[name][:NUM_STEPS_OF_A_SCHEDULE]]
        for name in (schedule, "1f1b")
    )
    assert found == expected
    assert len({loss for loss, _, _ in found}) == NUM_STEPS_OF_A_SCHEDULE


def test_regrouped_rows_have_the_losses_of_rows_in_order_and_little_padding(
    steps: dict[str, list[dict[str, Any]]],
) -> None:
    plain, regrouped = steps["1f1b"], steps["regrouped"]
    assert [step["loss"] for step in regrouped] == pytest.approx([step["loss"] for step in plain], abs=1e-5, rel=0)
    assert len({step["loss"] for step in plain}) == NUM_STEPS
    rows = [[sorted(row for part in step["rows"][0] for row in part) for step in job] for job in (plain, regrouped)]
    assert rows[0] == rows[1]
    padded, tokens = (sum(step[name] for step in regrouped) for name in ("padded_tokens", "tokens"))
    assert padded / (padded + tokens) < 0.08
