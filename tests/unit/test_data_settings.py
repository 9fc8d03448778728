"""What the data service reads out of a job's spec."""

import json
from pathlib import Path
from typing import Any

import pytest

from dataloader_svc.errors import SpecError
from dataloader_svc.settings import Objective, Padding, parse_settings
from tests.data_jobs import settings, spec_json


def test_parse_settings_demo_needs_no_folder() -> None:
    job = settings({"data.padding": "max_length", "parallel.dp": 3, "eval.batch_size": 10})

    assert (job.task.name, job.source, job.tokenizer) == ("demo", None, None)
    assert (job.padding, job.num_replicas, job.evaluation_batch_size) == (Padding.MAX_LENGTH, 3, 10)


def test_parse_settings_glue_task_has_its_folders() -> None:
    job = settings({"data.task": "mrpc", "data.source": "/rows", "data.tokenizer": "/model"})

    assert (job.source, job.tokenizer, job.task.num_texts) == (Path("/rows"), Path("/model"), 2)


def test_parse_settings_microbatch_size_gives_the_count() -> None:
    job = settings(
        {
            "schedule.num_microbatches": None,
            "schedule.microbatch_size": 4,
            "parallel.dp": 2,
            "train.gradient_accumulation_steps": 2,
            "train.global_batch_size": 33,
        }
    )

    assert job.num_microbatches == 3  # 33 rows over 2 replicas x 2 slices x 4 rows, rounded up
    assert job.training(100).num_microbatches == 6
    assert job.evaluation(100).num_microbatches == 3


def test_training_without_shuffle_is_in_file_order() -> None:
    assert settings({"data.shuffle": False}).training(10).step(1).replicas[0][0].tolist() == [0, 1]


def test_evaluation_is_in_file_order_whatever_the_training_does() -> None:
    step = settings({"data.drop_last": True, "eval.batch_size": 4}).evaluation(10).step(3)

    assert [rows.tolist() for rows in step.replicas[0][:3]] == [[8], [9], []]


@pytest.mark.parametrize(
    ("changes", "steps"),
    [({}, 12), ({"train.max_steps": 5}, 5), ({"train.epochs": None, "train.max_steps": 50}, 50)],
)
def test_training_steps_are_max_steps_or_epochs_times_theirs(changes: dict[str, Any], steps: int) -> None:
    assert settings(changes).training_steps(100) == steps  # 100 rows in batches of 32: 4 steps an epoch, 3 epochs


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"data.task": "sst-2"}, "data.task is 'sst-2', which is no task; the tasks are: cola, sst2, mrpc, qqp, stsb"),
        ({"data.task": None}, "the job spec has no value for data.task"),
        ({"data.task": "sst2", "data.source": "rows"}, "data.source is 'rows', need the absolute path"),
        ({"data.task": "sst2", "data.source": "/rows"}, "task sst2 needs data.tokenizer"),
        ({"data.tokenizer": "bert-base-uncased"}, "data.tokenizer is 'bert-base-uncased', need the absolute path"),
        ({"data.padding": "left"}, "data.padding is 'left', need one of longest, max_length"),
        (
            {"data.microbatching": "by_length"},
            "data.microbatching is 'by_length', need one of in_order, length_balanced",
        ),
        ({"data.malformed_lines": "keep"}, "data.malformed_lines is 'keep', need one of refuse, skip"),
        ({"model.pretrained": "bert"}, "model.pretrained is 'bert', need the absolute path"),
        ({"data.max_length": "128"}, "data.max_length is '128', need int"),
        ({"data.max_length": True}, "data.max_length is True, need int"),
        ({"data.max_train_rows": 0}, "data.max_train_rows is 0, need at least 1"),
        ({"train.global_batch_size": 0}, "train.global_batch_size is 0, need at least 1"),
        ({"train.seed": -1}, "train.seed is -1, need at least 0"),
        ({"train.objective": None}, "the job spec has no value for train.objective"),
        ({"train.objective": "mlm"}, "train.objective is 'mlm', need one of classification, masked_lm, causal_lm"),
        ({"train.mlm_probability": "all"}, "train.mlm_probability is 'all', need float"),
        *(
            (
                {"train.objective": "masked_lm", "train.mlm_probability": share},
                f"train.mlm_probability is {share}, need above 0 and at most 1 for masked_lm",
            )
            for share in (0.0, -0.15, 1.5, float("nan"))
        ),
        ({"train.epochs": None}, "neither train.epochs nor train.max_steps"),
        ({"schedule.num_microbatches": None}, "no value for schedule.microbatch_size"),
    ],
)
def test_parse_settings_wrong_value_is_refused_by_key(changes: dict[str, Any], message: str) -> None:
    with pytest.raises(SpecError, match=message):
        settings(changes)


def test_parse_settings_source_hub_is_a_repository_and_no_folder() -> None:
    job = settings({"data.task": "sst2", "data.source": "hub", "data.tokenizer": "/model"})

    assert (job.source, job.repository) == (None, "nyu-mll/glue")
    assert settings({"data.task": "sst2", "data.source": "/rows", "data.tokenizer": "/model"}).repository is None
    assert settings({"data.source": "hub"}).repository is None  # demo is generated


def test_parse_settings_objective_is_read_with_its_share() -> None:
    job = settings({"train.objective": "masked_lm", "train.mlm_probability": 0.4})

    assert (job.objective, job.mlm_probability) == (Objective.MASKED_LM, 0.4)
    assert settings({"train.objective": "causal_lm", "train.mlm_probability": 0.0}).objective is Objective.CAUSAL_LM


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "the job spec is not JSON"),
        ("[" * 100_000, "the job spec is not JSON"),
        ("[]", "where the section of data.task should be"),
        ('{"data": "demo"}', "has 'demo' where the section of data.task should be"),
        ("{}", "the job spec has no value for data.task"),
    ],
)
def test_parse_settings_text_that_is_no_spec_is_refused(text: str, message: str) -> None:
    with pytest.raises(SpecError, match=message):
        parse_settings(text)


def test_parse_settings_other_keys_do_not_matter() -> None:
    spec = json.loads(spec_json())
    spec["model"] = {"config": {"model_type": "bert"}}

    assert parse_settings(json.dumps(spec)) == settings()
