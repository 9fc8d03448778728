"""Jobs whose data come from the Hub, as users run them."""

from pathlib import Path

import pytest

from tests.hub_folders import Columns, prepare, sst2_columns, sst2_features, write_hub
from tests.integration.services.job_files import save_tiny_bert, sst2_rows, write_job
from tests.integration.services.programs import takt
from tests.integration.services.standing import lines_of

pytestmark = pytest.mark.timeout(180)


def columns(num_rows: int) -> Columns:
    """Return rows of SST-2 of which no two are alike."""
    sentences, labels = zip(*sst2_rows(num_rows), strict=True)
    return sst2_columns(sentences, labels)


def test_job_without_a_source_is_trained_on_what_the_cache_holds_and_refused_where_it_holds_nothing(
    tmp_path: Path,
) -> None:
    """Also H13 (b): within 30 s, by task and folder."""
    model = save_tiny_bert(tmp_path / "bert")
    changes = {
        "model": {"pretrained": str(model)},
        "data": {"task": "sst2", "max_length": 32},
        "parallel.pp": 1,
        "eval.at_end": True,
    }
    job_file = write_job(tmp_path / "job.yaml", changes)
    home = tmp_path / "home"
    env = {"HF_HOME": str(home), "HF_ENDPOINT": "http://127.0.0.1:9", "HF_HUB_OFFLINE": "1"}

    refused = takt("validate", job_file, env=env, limit_seconds=30)
    assert refused.code == 2
    (told,) = [line for line in refused.err.splitlines() if line.startswith("error: ")]
    assert f"task sst2: data.source is hub, but the data set nyu-mll/glue is not in {home}/" in told
    assert "give data.source a folder in the official GLUE layout" in told

    splits = {"train": columns(33), "validation": columns(5), "test": columns(4)}
    folder = write_hub(tmp_path / "glue", "sst2", splits, sst2_features())
    prepare(folder, "sst2", home / "datasets")
    options = ("--id", "hub", "--state-dir", tmp_path / "state")
    ran = takt("run", job_file, *options, env=env)
    assert ran.code == 0, ran.err
    steps = lines_of(tmp_path / "state/jobs/hub/steps.jsonl")
    assert [step["examples"] for step in steps] == [16, 16, 1]
    assert sum(step["tokens"] for step in steps) == sum(len(text.split()) + 2 for text, _ in sst2_rows(33))
    (evaluation,) = lines_of(tmp_path / "state/jobs/hub/eval.jsonl")
    assert (evaluation["split"], evaluation["examples"]) == ("validation", 5)
