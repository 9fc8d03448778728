"""What tells the rows of a split from others."""

import json
import shutil
from dataclasses import replace
from pathlib import Path

import pytest

from dataloader_svc.errors import ReplacedError
from dataloader_svc.splits import SplitRows
from dataloader_svc.tokens import open_tokenizer, rows_digest
from tests.data_jobs import minilm
from tests.unit.data_rows import key_of, write_text

ROWS = SplitRows(first=("ab", "c"), second=("d", "e"), labels=(0, 1))


def test_rows_digest_changes_with_every_text_label_and_place() -> None:
    others = [
        SplitRows(first=("a", "bc"), second=("d", "e"), labels=(0, 1)),
        SplitRows(first=("ab", "c"), second=("d", "f"), labels=(0, 1)),
        SplitRows(first=("d", "e"), second=("ab", "c"), labels=(0, 1)),
        SplitRows(first=("ab", "c", "d", "e"), second=None, labels=(0, 1)),
        SplitRows(first=("ab", "c"), second=None, labels=(0, 1)),
        SplitRows(first=("ab", "c"), second=("d", "e"), labels=(1, 0)),
        SplitRows(first=("ab", "c"), second=("d", "e"), labels=(0.0, 1.0)),
        SplitRows(first=("ab", "c"), second=("d", "e"), labels=None),
        SplitRows(first=("ab",), second=("d",), labels=(0,)),
    ]

    assert len({rows.digest() for rows in (ROWS, *others)}) == 1 + len(others)


def test_rows_digest_is_of_the_rows_that_are_used_alone() -> None:
    longer = SplitRows(first=("ab", "c", "x"), second=("d", "e", "y"), labels=(0, 1, 1), num_malformed=3)

    assert longer.head(2).digest() == ROWS.digest()


@pytest.mark.parametrize("change", ["vocabulary", "pad_token", "mask_token", "truncation_side"])
def test_tokenizer_digest_changes_with_what_tokens_depend_on(tmp_path: Path, change: str) -> None:
    for name in ("tokenizer.json", "tokenizer_config.json"):
        shutil.copyfile(minilm() / name, tmp_path / name)
    before = open_tokenizer(tmp_path).digest
    config = json.loads((tmp_path / "tokenizer_config.json").read_text())
    values = {"truncation_side": "left", "pad_token": "[unused0]", "mask_token": None}
    if change == "vocabulary":
        text = (tmp_path / "tokenizer.json").read_text()
        (tmp_path / "tokenizer.json").write_text(text.replace('"film"', '"flim"'))
    else:
        (tmp_path / "tokenizer_config.json").write_text(json.dumps({**config, change: values[change]}))

    assert open_tokenizer(tmp_path).digest != before


def test_tokenizer_digest_stays_in_another_folder_and_with_a_setting_that_tells_no_token(tmp_path: Path) -> None:
    config = json.loads((minilm() / "tokenizer_config.json").read_text())
    shutil.copyfile(minilm() / "tokenizer.json", tmp_path / "tokenizer.json")
    (tmp_path / "tokenizer_config.json").write_text(json.dumps({**config, "model_max_length": 7}))

    assert open_tokenizer(tmp_path).digest == open_tokenizer(minilm()).digest


def test_tokenised_rows_carry_the_digest_of_the_text_and_the_tokenizer() -> None:
    tokenizer = open_tokenizer(None)

    assert tokenizer.tokenise(ROWS, max_length=8).digest == rows_digest(ROWS, tokenizer)


def test_check_unchanged_names_what_is_not_what_it_was(tmp_path: Path) -> None:
    folder = write_text(tmp_path / "text")
    key = key_of(folder)
    key.check_unchanged(known="r.t", found="r.t", job="a")
    key.check_unchanged(known="", found="r.t", job="a")

    with pytest.raises(ReplacedError, match=f"^the rows of the split train in {folder}/train.tsv changed after job a"):
        key.check_unchanged(known="r.t", found="x.t", job="a")
    with pytest.raises(ReplacedError, match=f"^the tokenizer in {folder} changed after job a was checked"):
        key.check_unchanged(known="r.t", found="r.x", job="a")
    with pytest.raises(ReplacedError, match="in the built-in task demo changed"):
        replace(key, task="demo", stamps=()).check_unchanged(known="r.t", found="x.t", job="a")
