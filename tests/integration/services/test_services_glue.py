"""Real input: a pretrained BERT on real GLUE rows, against one process with nothing but transformers."""

import csv
import math
from pathlib import Path

import pytest

from tests.data_jobs import minilm, real_glue
from tests.integration.services.job_files import write_job
from tests.integration.services.programs import takt
from tests.integration.services.standing import Standing, lines_of

pytestmark = [pytest.mark.real_glue, pytest.mark.timeout(300)]

NUM_STEPS = 4


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return the folder of a pretrained BERT with a new head and without dropout, as transformers saves it."""
    import torch  # noqa: PLC0415  where there is no GLUE, it is not needed
    from transformers import AutoModelForSequenceClassification, AutoTokenizer  # noqa: PLC0415

    real_glue()
    folder = tmp_path_factory.mktemp("minilm")
    torch.manual_seed(3)
    AutoModelForSequenceClassification.from_pretrained(
        minilm(), hidden_dropout_prob=0.0, attention_probs_dropout_prob=0.0
    ).save_pretrained(folder)
    AutoTokenizer.from_pretrained(minilm()).save_pretrained(folder)
    return folder


def expected_loss(model: Path, rows: list[int]) -> float:
    """Return the mean loss of rows of the training file of SST-2, one row at a time, so that nothing is padded."""
    import torch  # noqa: PLC0415
    from transformers import AutoModelForSequenceClassification, AutoTokenizer  # noqa: PLC0415

    with (real_glue() / "SST-2" / "train.tsv").open(encoding="utf-8-sig", newline="\n") as file:
        table = list(csv.DictReader(file, delimiter="\t", quoting=csv.QUOTE_NONE))
    tokenizer = AutoTokenizer.from_pretrained(model)
    whole = AutoModelForSequenceClassification.from_pretrained(model).eval()
    losses = []
    for row in (table[number] for number in rows):
        encoded = tokenizer(row["sentence"], truncation=True, max_length=128, return_tensors="pt")
        with torch.no_grad():
            losses.append(whole(**encoded, labels=torch.tensor([int(row["label"])])).loss.item())
    return math.fsum(losses) / len(losses)


def test_twenty_steps_on_real_rows_follow_plain_loops(model: Path, tmp_path: Path) -> None:
    """MRPC; one loop accumulates the same microbatches in the same order, the other takes whole batches."""
    from benchmarks.plain_training import PlainTraining, Training  # noqa: PLC0415  it imports torch

    train = {"max_steps": 20, "global_batch_size": 16, "learning_rate": 5e-5, "weight_decay": 0.01}
    changes = {
        "model": {"pretrained": str(model)},
        "data": {"task": "mrpc", "source": str(real_glue()), "record_rows": True},
        "schedule.num_microbatches": 8,
        "train": {**train, "warmup_fraction": 0.1},
    }
    options = ("--id", "mrpc", "--state-dir", tmp_path / "state")
    finished = takt("run", write_job(tmp_path / "job.yaml", changes), *options, limit_seconds=240)
    assert finished.code == 0, finished.err
    steps = lines_of(tmp_path / "state/jobs/mrpc/steps.jsonl")
    accumulated = [step["rows"][0] for step in steps]
    whole = [[[row for rows in step for row in rows]] for step in accumulated]
    training = Training(
        model=model,
        source=real_glue(),
        learning_rate=5e-5,
        weight_decay=0.01,
        warmup_fraction=0.1,
        total_steps=20,
    )
    for batches, limit in ((accumulated, 1e-6), (whole, 1e-5)):
        expected = list(PlainTraining(training).steps(batches))
        assert [step["loss"] for step in steps] == pytest.approx(expected, abs=limit)
    assert len({step["loss"] for step in steps}) == 20


def test_first_loss_on_real_rows_is_that_of_transformers(model: Path, tmp_path: Path) -> None:
    changes = {
        "model": {"pretrained": str(model)},
        "data": {"task": "sst2", "source": str(real_glue()), "record_rows": True},
        "schedule.num_microbatches": 8,
        "train": {"max_steps": NUM_STEPS, "global_batch_size": 32, "learning_rate": 5e-5},
    }
    options = ("--id", "sst2", "--state-dir", tmp_path / "state")
    finished = takt("run", write_job(tmp_path / "job.yaml", changes), *options, limit_seconds=240)
    assert finished.code == 0, finished.err
    steps = lines_of(tmp_path / "state/jobs/sst2/steps.jsonl")
    assert len(steps) == NUM_STEPS
    rows = [row for microbatch in steps[0]["rows"][0] for row in microbatch]
    assert len(set(rows)) == 32
    assert steps[0]["loss"] == pytest.approx(expected_loss(model, rows), abs=1e-5)
    assert steps[-1]["loss"] != steps[0]["loss"]


def test_regrouped_real_rows_follow_those_in_order_with_less_padding(model: Path, up: Standing, tmp_path: Path) -> None:
    for microbatching in ("in_order", "length_balanced"):
        changes = {
            "model": {"pretrained": str(model)},
            "data": {"task": "sst2", "source": str(real_glue()), "microbatching": microbatching, "record_rows": True},
            "schedule.num_microbatches": 8,
            "train": {"max_steps": 20, "global_batch_size": 32, "learning_rate": 5e-5},
        }
        up.submit(write_job(tmp_path / f"{microbatching}.yaml", changes), microbatching)
    steps = {}
    for job in ("in_order", "length_balanced"):
        status = up.end_of(job, limit_seconds=240)
        assert status["state"] == "SUCCEEDED", status["reason"]
        steps[job] = lines_of(up.folder(job) / "steps.jsonl")
    plain, balanced = steps["in_order"], steps["length_balanced"]
    assert [step["loss"] for step in balanced] == pytest.approx([step["loss"] for step in plain], abs=1e-5)
    assert len({step["loss"] for step in plain}) == 20
    rows = [[sorted(row for part in step["rows"][0] for row in part) for step in job] for job in (plain, balanced)]
    assert rows[0] == rows[1]
    padded, tokens = (sum(step[name] for step in balanced) for name in ("padded_tokens", "tokens"))
    assert padded / (padded + tokens) < 0.08


def test_schedules_on_real_rows_give_the_losses_of_1f1b(model: Path, up: Standing, tmp_path: Path) -> None:
    schedules = {
        "1f1b": {},
        "interleaved": {"num_chunks": 3},
        "zbh1": {},
        "zbv": {"num_chunks": 2},
    }
    for name, keys in schedules.items():
        changes = {
            "model": {"pretrained": str(model)},
            "data": {"task": "sst2", "source": str(real_glue()), "record_rows": True},
            "schedule": {"name": name, "num_microbatches": 8, **keys},
            "train": {"max_steps": 3, "global_batch_size": 32, "learning_rate": 5e-5},
        }
        up.submit(write_job(tmp_path / f"{name}.yaml", changes), f"sst2-{name}")
    found = {}
    for name in schedules:
        status = up.end_of(f"sst2-{name}", limit_seconds=240)
        assert status["state"] == "SUCCEEDED", status["reason"]
        steps = lines_of(up.folder(f"sst2-{name}") / "steps.jsonl")
        found[name] = [(step["loss"], step["grad_norm"], step["rows"]) for step in steps]
    assert len({loss for loss, _, _ in found["1f1b"]}) == 3
    for name in schedules:
        assert found[name] == found["1f1b"], name
