"""Data sets in the Hub's form, written and prepared by the library itself."""

import json
import shutil
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import datasets
from datasets import ClassLabel, Dataset, Features, Value, load_dataset_builder

Columns = Mapping[str, Sequence[Any]]


def sst2_features(names: Sequence[str] = ("negative", "positive")) -> Features:
    """Return the columns of SST-2 with these names of label ids."""
    return Features({"sentence": Value("string"), "label": ClassLabel(names=list(names)), "idx": Value("int32")})


def sst2_columns(sentences: Sequence[str], labels: Sequence[int]) -> Columns:
    """Return the rows of a split of SST-2."""
    return {"sentence": sentences, "label": labels, "idx": range(len(sentences))}


def write_hub(folder: Path, task: str, splits: Mapping[str, Columns], features: Features | None) -> Path:
    """Add a task to a repository folder in the form of the Hub's glue: parquet files, and a card that names them."""
    for split, columns in splits.items():
        path = folder / task / f"{split}-00000-of-00001.parquet"
        path.parent.mkdir(parents=True, exist_ok=True)
        Dataset.from_dict({name: list(cells) for name, cells in columns.items()}, features=features).to_parquet(
            path, batch_size=4
        )
    configs = [
        {
            "config_name": each.name,
            "data_files": [
                {"split": split, "path": f"{each.name}/{split}-*"}
                for split in (path.name.partition("-")[0] for path in sorted(each.iterdir()))
            ],
        }
        for each in sorted(path for path in folder.iterdir() if path.is_dir())
    ]
    (folder / "README.md").write_text(f"---\n{json.dumps({'configs': configs})}\n---\n")
    return folder


def write_sst2_hub(folder: Path, *, num_rows: int = 12) -> Path:
    """Write SST-2 with words that the built-in tokenizer knows; row ``i`` has label ``i % 2``."""
    sentences = [" ".join(["plot", "was", "never", "dull"][: 1 + row % 4]) for row in range(num_rows)]
    labels = [row % 2 for row in range(num_rows)]
    splits = {
        "train": sst2_columns(sentences, labels),
        "validation": sst2_columns(sentences[:5], labels[:5]),
        "test": sst2_columns(sentences[:3], [-1] * 3),
    }
    return write_hub(folder, "sst2", splits, sst2_features())


def prepare(folder: Path, task: str, cache: Path, *, revision: str = "c" * 40, shard_bytes: int = 500_000_000) -> Path:
    """Have the library prepare a task of a repository folder called glue in a cache, as if it were nyu-mll/glue.

    What it prepares of the Hub has the Hub's name and the commit in its path; all else is the same.
    """
    assert folder.name == "glue"
    with tempfile.TemporaryDirectory() as elsewhere:
        builder = load_dataset_builder(str(folder), task, cache_dir=elsewhere)
        builder.download_and_prepare(max_shard_size=shard_bytes)
        prepared = cache / "nyu-mll___glue" / task / "0.0.0" / revision
        shutil.rmtree(prepared, ignore_errors=True)
        prepared.parent.mkdir(parents=True, exist_ok=True)
        shutil.move(builder.cache_dir, prepared)
    return prepared


datasets.disable_progress_bars()
