"""Job files, tiny models and GLUE-shaped folders."""

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

WORDS = tuple(f"w{number:02}" for number in range(40))
SPECIAL = ("[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]")
NUM_PARAMETERS = 10_498
"""Of the model that ``save_tiny_bert`` writes."""
TINY: Mapping[str, Any] = {
    "model_type": "bert",
    "num_hidden_layers": 4,
    "hidden_size": 16,
    "num_attention_heads": 2,
    "intermediate_size": 32,
    "max_position_embeddings": 32,
}
PLAIN: Mapping[str, Any] = {**TINY, "hidden_dropout_prob": 0.0, "attention_probs_dropout_prob": 0.0}


def write_job(path: Path, changes: Mapping[str, Any] | None = None) -> Path:
    """Write a job file of the demo task, three steps on two stages.

    ``changes`` gives other values by dotted key, or whole sections.
    The epoch has 33 rows: 16, 16, and 1 for the two microbatches of the last step.
    """
    job: dict[str, Any] = {
        "name": "tiny",
        "model": {"config": dict(TINY)},
        "data": {"task": "demo", "max_length": 32, "max_train_rows": 33, "record_rows": True},
        "parallel": {"pp": 2, "dp": 1},
        "schedule": {"name": "1f1b", "num_microbatches": 2},
        "train": {"epochs": 1, "global_batch_size": 16, "learning_rate": 1e-3},
        "eval": {"at_end": False},
        "limits": {"max_restarts": 0},
    }
    for key, value in (changes or {}).items():
        section, _, name = key.partition(".")
        if name:
            job.setdefault(section, {})[name] = value
        else:
            job[section] = value
    path.write_text(json.dumps(job))
    return path


def save_tiny_bert(folder: Path, **changes: Any) -> Path:
    """Write a random BERT without dropout and a tokenizer that knows 40 words, as transformers writes them.

    ``changes`` gives other values of the config.
    """
    import torch  # noqa: PLC0415  most tests need neither
    from tokenizers import Tokenizer, models, pre_tokenizers, processors  # noqa: PLC0415
    from transformers import BertConfig, BertForSequenceClassification, PreTrainedTokenizerFast  # noqa: PLC0415

    vocabulary = {word: number for number, word in enumerate((*SPECIAL, *WORDS))}
    tokenizer = Tokenizer(models.WordLevel(vocabulary, unk_token="[UNK]"))
    tokenizer.pre_tokenizer = pre_tokenizers.Whitespace()
    tokenizer.post_processor = processors.BertProcessing(("[SEP]", vocabulary["[SEP]"]), ("[CLS]", vocabulary["[CLS]"]))
    PreTrainedTokenizerFast(
        tokenizer_object=tokenizer,
        unk_token="[UNK]",
        pad_token="[PAD]",
        cls_token="[CLS]",
        sep_token="[SEP]",
        mask_token="[MASK]",
    ).save_pretrained(folder)
    torch.manual_seed(7)
    values = {name: value for name, value in PLAIN.items() if name != "model_type"}
    BertForSequenceClassification(BertConfig(**values | changes, vocab_size=len(vocabulary))).save_pretrained(folder)
    return folder


def write_rows(path: Path, header: Sequence[str], rows: Sequence[Sequence[object]]) -> None:
    """Write a file in the GLUE layout."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("".join("\t".join(map(str, line)) + "\n" for line in (header, *rows)))


def write_sst2(source: Path, rows: Sequence[tuple[str, int]], *, split: str = "train") -> Path:
    """Write sentences and labels in the layout of SST-2; return ``source``."""
    file = source / "SST-2" / f"{split}.tsv"
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text("".join(f"{sentence}\t{label}\n" for sentence, label in [("sentence", "label"), *rows]))
    return source


def sst2_rows(num_rows: int) -> list[tuple[str, int]]:
    """Return rows of which no two are alike, 1 to 9 words long."""
    return [
        (" ".join(WORDS[(7 * row + 3 * place) % 40] for place in range(1 + row % 9)), row % 3 % 2)
        for row in range(num_rows)
    ]
