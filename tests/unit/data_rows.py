"""Tokenised rows, and how they are cut, for the tests of the data service."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from dataloader_svc.corpus import FileStamp
from dataloader_svc.masking import Masking
from dataloader_svc.microbatches import Batcher
from dataloader_svc.settings import MalformedLines, Padding
from dataloader_svc.sharding import StepRows
from dataloader_svc.split_key import SplitKey
from dataloader_svc.splits import SplitName
from dataloader_svc.targets import RowLabels, Target
from dataloader_svc.tokens import TokenisedRows

PAD, MASK = 99, 50
FIRST_SPECIAL = 90
"""Ids from here on frame a row."""


def split_of(*rows: list[int], labelled: bool = True) -> TokenisedRows:
    """Return a split whose rows have these ids; a row's token types are its ids modulo 2, its label its number."""
    ids = np.array([token for row in rows for token in row], dtype=np.int32)
    return TokenisedRows(
        input_ids_T=ids,
        token_types_T=(ids % 2).astype(np.uint8),
        special_T=ids >= FIRST_SPECIAL,
        starts=np.cumsum([0, *map(len, rows)]),
        labels_N=np.arange(len(rows)) if labelled else None,
        pad_token_id=PAD,
        mask_token_id=MASK,
        ordinary_ids_V=np.arange(40, dtype=np.int32),
        digest="text.tokenizer",
    )


def masking(*, probability: float = 0.15, seed: int = 42) -> Masking:
    return Masking(
        probability=probability,
        seed=seed,
        mask_token_id=MASK,
        replacement_ids_V=np.arange(40, dtype=np.int32),
    )


def batcher(
    rows: TokenisedRows,
    target: Target | None = None,
    *,
    padding: Padding = Padding.LONGEST,
    record_rows: bool = False,
) -> Batcher:
    """Return what cuts ``rows``, for classification where no target is given."""
    return Batcher(rows=rows, target=target or RowLabels(rows), padding=padding, max_length=8, record_rows=record_rows)


def one_step(*microbatches: list[int]) -> StepRows:
    """Return step 3 of one replica with these rows."""
    return one_step_of_replicas([*microbatches])


def one_step_of_replicas(*replicas: list[list[int]]) -> StepRows:
    """Return step 3, with these rows of each microbatch of each replica."""
    rows = tuple(tuple(np.array(ids, dtype=np.int64) for ids in microbatches) for microbatches in replicas)
    return StepRows(step=3, epoch=1, replicas=rows)


def write_text(folder: Path) -> Path:
    """Make a folder with the files that `key_of` names; return it."""
    folder.mkdir()
    (folder / "train.tsv").write_text("good\t1\n")
    (folder / "tokenizer.json").write_text("{}")
    return folder


def key_of(folder: Path, **changes: Any) -> SplitKey:
    """Return the key of a split whose text and tokenizer lie in ``folder``."""
    files = [folder / name for name in ("train.tsv", "tokenizer.json")]
    key = SplitKey(
        task="sst2",
        labels=("no", "yes"),
        malformed_lines=MalformedLines.REFUSE,
        split=SplitName.TRAIN,
        source=folder,
        tokenizer=folder,
        max_length=8,
        max_train_rows=None,
        stamps=tuple(FileStamp(path=file, num_bytes=1, modified_ns=1) for file in files),
    )
    return replace(key, **changes)
