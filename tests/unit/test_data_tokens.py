"""Tokenisation, compared with transformers' own tokenizer."""

import json
import shutil
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from transformers import BertTokenizer, PreTrainedTokenizerFast

from dataloader_svc import tokens
from dataloader_svc.corpus import read_rows
from dataloader_svc.errors import SpecError, TokenizerError
from dataloader_svc.splits import SplitName, SplitRows
from dataloader_svc.tokens import open_tokenizer
from tests.data_jobs import minilm, real_glue, settings

AWKWARD = (
    "",
    "a",
    'he said " so it goes " \u2028 café',
    "unaffable " * 40,
    "\u4e2d\u6587 and emoji \U0001f600",
    "[SEP] inside [MASK]",
)


def sentences(*first: str, second: tuple[str, ...] | None = None) -> SplitRows:
    return SplitRows(first=first, second=second, labels=tuple(0 for _ in first))


def assert_equal_to_transformers(rows: SplitRows, *, max_length: int) -> None:
    theirs = BertTokenizer.from_pretrained(str(minilm()))(
        list(rows.first),
        None if rows.second is None else list(rows.second),
        truncation="longest_first",
        max_length=max_length,
        return_special_tokens_mask=True,
    )
    ours = open_tokenizer(minilm()).tokenise(rows, max_length=max_length)

    assert ours.num_rows == len(rows)
    for row in range(ours.num_rows):
        span = slice(ours.starts[row], ours.starts[row + 1])
        assert ours.input_ids_T[span].tolist() == theirs["input_ids"][row]
        assert ours.token_types_T[span].tolist() == theirs["token_type_ids"][row]
        assert ours.special_T[span].tolist() == [mask == 1 for mask in theirs["special_tokens_mask"][row]]
        assert ours.num_maskable_N[row] == theirs["special_tokens_mask"][row].count(0)
    assert ours.lengths_of(np.arange(len(rows))).tolist() == [sum(mask) for mask in theirs["attention_mask"]]


@pytest.mark.real_glue
@pytest.mark.parametrize("max_length", [128, 40])
@pytest.mark.parametrize("task", ["sst2", "mrpc"])
def test_tokenise_real_rows_equal_transformers(task: str, max_length: int) -> None:
    job = settings({"data.task": task, "data.source": str(real_glue()), "data.tokenizer": str(minilm())})

    assert_equal_to_transformers(read_rows(job, SplitName.VALIDATION), max_length=max_length)


@pytest.mark.parametrize("max_length", [8, 64])
def test_tokenise_awkward_rows_equal_transformers(max_length: int) -> None:
    assert_equal_to_transformers(sentences(*AWKWARD), max_length=max_length)
    assert_equal_to_transformers(sentences(*AWKWARD, second=AWKWARD[::-1]), max_length=max_length)


def test_tokenise_many_calls_of_the_library_join_in_order(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tokens, "ROWS_AT_ONCE", 4)

    assert_equal_to_transformers(sentences(*AWKWARD, second=AWKWARD[::-1]), max_length=32)


def test_tokenise_long_row_is_cut_to_max_length_and_still_ends_in_separator() -> None:
    rows = open_tokenizer(None).tokenise(sentences("film " * 100), max_length=32)

    assert rows.input_ids_T.tolist()[-1] == 3  # [SEP]
    assert rows.lengths_of(np.array([0])).tolist() == [32]


def test_tokenise_no_rows_gives_no_tokens() -> None:
    rows = open_tokenizer(None).tokenise(sentences(), max_length=32)

    assert (rows.num_rows, len(rows.input_ids_T), len(rows.token_types_T)) == (0, 0, 0)


@pytest.mark.parametrize(("num_texts", "least"), [(1, 3), (2, 5)])
def test_check_length_without_room_for_a_token_is_refused(num_texts: int, least: int) -> None:
    tokenizer = open_tokenizer(None)

    tokenizer.check_length(least, num_texts=num_texts)
    with pytest.raises(SpecError, match=f"data.max_length is {least - 1}, need at least {least}"):
        tokenizer.check_length(least - 1, num_texts=num_texts)


def test_open_tokenizer_real_folder_has_its_vocabulary_and_special_tokens() -> None:
    theirs = BertTokenizer.from_pretrained(str(minilm()))
    ours = open_tokenizer(minilm())

    assert (ours.vocabulary_size, ours.pad_token_id) == (len(theirs), theirs.pad_token_id)
    assert ours.mask_token_id == theirs.mask_token_id
    rows = ours.tokenise(sentences("a"), max_length=8)
    assert rows.ordinary_ids_V.tolist() == sorted({*range(len(theirs))} - {*theirs.all_special_ids})


def test_save_built_in_tokenizer_loads_as_fast_tokenizer_with_equal_ids(tmp_path: Path) -> None:
    open_tokenizer(None).save(tmp_path / "new" / "folder")

    theirs = PreTrainedTokenizerFast.from_pretrained(str(tmp_path / "new" / "folder"))
    text, other = "Honestly the plot was never dull this time", "the film is Unheard of"
    rows = open_tokenizer(None).tokenise(sentences(text, second=(other,)), max_length=64)
    encoded = theirs(text, other)
    assert encoded["input_ids"] == rows.input_ids_T.tolist()
    assert encoded["token_type_ids"] == rows.token_types_T.tolist()
    assert (theirs.pad_token, theirs.cls_token, theirs.sep_token) == ("[PAD]", "[CLS]", "[SEP]")
    assert (len(theirs), theirs.pad_token_id) == (96, 0)


def test_save_folder_tokenizer_copies_its_files_and_no_others(tmp_path: Path) -> None:
    open_tokenizer(minilm()).save(tmp_path)

    names = {"tokenizer.json", "tokenizer_config.json", "special_tokens_map.json", "vocab.txt"}
    assert {path.name for path in tmp_path.iterdir()} == names
    assert all((tmp_path / name).read_bytes() == (minilm() / name).read_bytes() for name in names)


def test_open_tokenizer_folder_without_fast_tokenizer_is_refused(tmp_path: Path) -> None:
    with pytest.raises(TokenizerError, match=r"there is no file .*tokenizer\.json; save the tokenizer there"):
        open_tokenizer(tmp_path)


def test_open_tokenizer_folder_that_cannot_be_looked_into_is_refused(tmp_path: Path) -> None:
    with pytest.raises(TokenizerError, match=r"data\.tokenizer: .*tokenizer\.json cannot be read: File name too long"):
        open_tokenizer(tmp_path / ("x" * 300))


def test_open_tokenizer_broken_file_is_refused(tmp_path: Path) -> None:
    (tmp_path / "tokenizer.json").write_text("{")

    with pytest.raises(TokenizerError, match=r"tokenizer\.json cannot be read"):
        open_tokenizer(tmp_path)


def test_open_tokenizer_endless_config_is_refused(tmp_path: Path) -> None:
    shutil.copyfile(minilm() / "tokenizer.json", tmp_path / "tokenizer.json")
    (tmp_path / "tokenizer_config.json").write_text("[" * 100_000)

    with pytest.raises(TokenizerError, match=r"tokenizer_config\.json cannot be read: maximum recursion depth"):
        open_tokenizer(tmp_path)


@pytest.mark.parametrize("side", ["middle", None, 5])
def test_open_tokenizer_that_cuts_on_no_side_is_refused(tmp_path: Path, side: object) -> None:
    shutil.copyfile(minilm() / "tokenizer.json", tmp_path / "tokenizer.json")
    (tmp_path / "tokenizer_config.json").write_text(json.dumps({"pad_token": "[PAD]", "truncation_side": side}))

    with pytest.raises(TokenizerError, match=f"has truncation_side {side!r}, need left or right"):
        open_tokenizer(tmp_path)


@pytest.mark.parametrize("pad", [None, "<nothing>", 7])
def test_open_tokenizer_without_pad_token_is_refused(tmp_path: Path, pad: object) -> None:
    shutil.copyfile(minilm() / "tokenizer.json", tmp_path / "tokenizer.json")
    (tmp_path / "tokenizer_config.json").write_text(json.dumps({"pad_token": pad}))

    with pytest.raises(TokenizerError, match=r"names no pad token .* set pad_token to .* eos_token, and save it again"):
        open_tokenizer(tmp_path)


@pytest.mark.parametrize("name", ["tokenizer_config.json", "special_tokens_map.json"])
def test_open_tokenizer_pad_token_is_found_as_object_in_either_file(tmp_path: Path, name: str) -> None:
    shutil.copyfile(minilm() / "tokenizer.json", tmp_path / "tokenizer.json")
    (tmp_path / name).write_text(json.dumps({"pad_token": {"content": "[MASK]", "special": True}}))

    assert open_tokenizer(tmp_path).pad_token_id == 103


def test_data_service_never_imports_torch_or_transformers() -> None:
    code = (
        "import pkgutil, sys, dataloader_svc\n"
        "for module in pkgutil.iter_modules(dataloader_svc.__path__):\n"
        "    __import__(f'dataloader_svc.{module.name}')\n"
        "from dataloader_svc.tokens import open_tokenizer\n"
        "from dataloader_svc.splits import SplitRows\n"
        "open_tokenizer(None).tokenise(SplitRows(first=('a',), second=None, labels=None), max_length=8)\n"
        "print({'torch', 'transformers', 'datasets', 'multiprocessing'} & set(sys.modules))\n"
    )
    result = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=50, check=True)

    assert result.stdout == "set()\n"
