"""Facts about a job's data, and the refusals before anything starts."""

import json
from pathlib import Path

import pytest
from tokenizers import Tokenizer, models

from dataloader_svc.app import app
from dataloader_svc.corpus import check_allowed
from dataloader_svc.errors import DataFileError, SpecError, TokenizerError
from dataloader_svc.facts import inspect_data
from dataloader_svc.splits import SplitName
from tests.data_jobs import minilm, real_glue, settings, spec_json, tokenizer_without_mask, write_sst2


def test_inspect_data_demo_tells_splits_labels_and_steps() -> None:
    facts = inspect_data(settings({"train.global_batch_size": 64, "train.epochs": 2, "eval.batch_size": 30}))

    assert [(split.name, split.num_rows, split.labelled, split.evaluation_steps) for split in facts.splits] == [
        (SplitName.TRAIN, 2000, True, 67),
        (SplitName.VALIDATION, 400, True, 14),
        (SplitName.TEST, 200, False, 7),
    ]
    assert facts.labels == ("negative", "positive")
    assert (facts.vocabulary_size, facts.pad_token_id) == (96, 0)
    assert (facts.steps_per_epoch, facts.total_steps) == (32, 64)


@pytest.mark.parametrize("objective", ["masked_lm", "causal_lm"])
def test_inspect_data_where_tokens_are_predicted_needs_no_label(objective: str) -> None:
    facts = inspect_data(settings({"train.objective": objective}))

    assert [split.labelled for split in facts.splits] == [True, True, True]
    assert facts.labels == ()
    assert (facts.vocabulary_size, facts.total_steps) == (96, 189)


def test_inspect_data_masked_lm_without_a_mask_token_is_refused(tmp_path: Path) -> None:
    folder = tokenizer_without_mask(tmp_path)

    with pytest.raises(TokenizerError, match=rf"data\.tokenizer: {folder} names no mask token.* masked_lm needs one"):
        inspect_data(settings({"data.tokenizer": str(folder), "train.objective": "masked_lm"}))
    assert inspect_data(settings({"data.tokenizer": str(folder), "train.objective": "causal_lm"})).labels == ()


@pytest.mark.parametrize(
    ("word_id", "error"), [(1, r"Missing \[UNK\] token"), (2**31, "2147483648 out of bounds")], ids=["word", "id"]
)
def test_inspect_data_tokenizer_that_cannot_take_the_rows_is_refused(tmp_path: Path, word_id: int, error: str) -> None:
    """Its first rows are tried, before any worker has started."""
    saved = json.loads(Tokenizer(models.WordLevel({"[PAD]": 0, "a": 1})).to_str())
    saved["model"]["vocab"]["a"] = word_id  # the library goes through all ids up to the last to save them
    (tmp_path / "tokenizer.json").write_text(json.dumps(saved))
    (tmp_path / "tokenizer_config.json").write_text(json.dumps({"pad_token": "[PAD]"}))
    write_sst2(tmp_path, [("a", 0), ("b" if word_id == 1 else "a", 1)])

    with pytest.raises(
        TokenizerError, match=rf"data\.tokenizer: {tmp_path} cannot tokenise a row of 0 to 1: .*{error}"
    ):
        inspect_data(settings({"data.task": "sst2", "data.source": str(tmp_path), "data.tokenizer": str(tmp_path)}))


def test_inspect_data_counts_rows_after_max_train_rows(tmp_path: Path) -> None:
    write_sst2(tmp_path, [(f"row {index}", 0) for index in range(20)])
    folders = {"data.task": "sst2", "data.source": str(tmp_path), "data.tokenizer": str(minilm())}

    facts = inspect_data(settings({**folders, "data.max_train_rows": 9, "train.global_batch_size": 4}))

    assert [(split.name, split.num_rows) for split in facts.splits] == [(SplitName.TRAIN, 9)]
    assert (facts.steps_per_epoch, facts.total_steps) == (3, 9)


def test_inspect_data_training_split_without_rows_is_refused(tmp_path: Path) -> None:
    write_sst2(tmp_path, [])

    with pytest.raises(DataFileError, match="task sst2: the training split has no rows"):
        inspect_data(settings({"data.task": "sst2", "data.source": str(tmp_path), "data.tokenizer": str(minilm())}))


def test_inspect_data_drop_last_of_every_row_is_refused() -> None:
    with pytest.raises(SpecError, match=r"2000 rows, train\.global_batch_size is 2001"):
        inspect_data(settings({"data.drop_last": True, "train.global_batch_size": 2001}))


def test_inspect_data_more_steps_than_the_wire_can_number_is_refused() -> None:
    with pytest.raises(SpecError, match="would take 135291469761 steps"):
        inspect_data(settings({"train.epochs": 2**31 - 1}))


def test_inspect_data_max_length_below_the_special_tokens_is_refused() -> None:
    with pytest.raises(SpecError, match=r"data\.max_length is 2, need at least 3"):
        inspect_data(settings({"data.max_length": 2}))


@pytest.mark.parametrize("key", ["data.source", "data.tokenizer"])
def test_check_allowed_path_outside_the_roots_is_refused(tmp_path: Path, key: str) -> None:
    allowed, other = tmp_path / "allowed", tmp_path / "other"
    allowed.mkdir()
    (allowed / "link").symlink_to(other)
    paths = {"data.source": str(allowed / "rows"), "data.tokenizer": str(allowed / "model")}

    check_allowed(settings({"data.task": "sst2", **paths}), [tmp_path / "x", allowed])
    for outside in (str(other), str(allowed / ".." / "other"), str(allowed / "link")):
        with pytest.raises(SpecError, match=f"{key} is .*, which is under no --allow-root"):
            check_allowed(settings({"data.task": "sst2", **paths, key: outside}), [allowed])


def test_check_allowed_demo_needs_no_root() -> None:
    check_allowed(settings(), [])


def test_inspect_data_of_a_prediction_looks_at_its_split_alone(tmp_path: Path) -> None:
    path = tmp_path / "SST-2" / "test.tsv"
    path.parent.mkdir()
    path.write_text("index\tsentence\n0\ta\n1\tb\n2\tc\n")
    (path.parent / "train.tsv").write_text("no file that anybody reads")
    values = {"data.task": "sst2", "data.source": str(tmp_path), "data.tokenizer": str(minilm())}
    facts = inspect_data(settings({**values, "predict.split": "test"}))
    assert [(split.name, split.num_rows, split.labelled) for split in facts.splits] == [("test", 3, False)]
    assert (facts.steps_per_epoch, facts.total_steps, facts.written_labels) == (0, 0, ("0", "1"))
    with pytest.raises(SpecError, match=r"predict\.split: is validation, but task sst2 has train, test in its files"):
        inspect_data(settings({**values, "predict.split": "validation"}))
    with pytest.raises(
        SpecError, match=r"has train, test in its files; it is the split of data\.task: ax, which a model"
    ):
        inspect_data(settings({**values, "predict.split": "ax"}))
    (path.parent / "train.tsv").unlink()
    assert inspect_data(settings({**values, "predict.split": "test"})) == facts, "who predicts needs no other file"
    path.write_text("index\tsentence\n")
    with pytest.raises(SpecError, match=r"predict\.split: is test, which has no row"):
        inspect_data(settings({**values, "predict.split": "test"}))


@pytest.mark.real_glue
@pytest.mark.parametrize(
    ("task", "rows"),
    [  # as the files' own README counts them
        ("cola", (8_551, 1_043, 1_063)),
        ("mrpc", (3_667, 408, 1_725)),
        ("rte", (2_490, 277, 3_000)),
        ("sst2", (67_349, 872, 1_821)),
        ("stsb", (5_749, 1_500, 1_379)),
    ],
)
def test_facts_program_prints_the_rows_of_real_files(
    task: str, rows: tuple[int, ...], *, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    folders = {"data.task": task, "data.source": str(real_glue()), "data.tokenizer": str(minilm())}
    (tmp_path / "spec.json").write_text(spec_json(folders))

    app(args=["facts", str(tmp_path / "spec.json")], standalone_mode=False)

    splits = json.loads(capsys.readouterr().out)["splits"]
    assert [(split["name"], split["rows"], split["malformed"]) for split in splits] == [
        (name, count, 0) for name, count in zip(("train", "validation", "test"), rows, strict=True)
    ]
    assert [split["labelled"] for split in splits] == [True, True, False]
