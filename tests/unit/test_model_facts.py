"""Facts about a job's model, from its config alone."""

import json
from pathlib import Path
from typing import Any

import pytest
from transformers import AutoConfig, AutoModel, AutoModelForSequenceClassification

from stage_worker.facts import model_facts, print_facts
from stage_worker.models.config import ModelConfigError
from stage_worker.models.families import UnsupportedModelError
from stage_worker.models.objective import Objective
from stage_worker.models.tensor_files import WeightsError

TRAIN = {"train": {"objective": "classification"}}
CONFIG: dict[str, Any] = {
    "model_type": "bert",
    "hidden_size": 16,
    "num_hidden_layers": 3,
    "num_attention_heads": 2,
    "intermediate_size": 32,
    "max_position_embeddings": 32,
    "type_vocab_size": 2,
    "vocab_size": 45,
}


def folder(path: Path, *, head: bool = False, **changes: Any) -> dict[str, Any]:
    """Save a whole model of random values, with the config as it was given; return the section that names it."""
    values = CONFIG | changes
    kind = AutoModelForSequenceClassification if head else AutoModel
    kind.from_config(AutoConfig.for_model(**values)).save_pretrained(path)
    (path / "config.json").write_text(json.dumps(values))
    return {"pretrained": str(path)}


def test_model_facts_of_a_folder(tmp_path: Path) -> None:
    facts = model_facts(folder(tmp_path, id2label={"0": "negative", "1": "positive"}))
    assert (facts.model_type, facts.num_layers, facts.hidden_size) == ("bert", 3, 16)
    assert (facts.max_positions, facts.vocabulary_size, facts.token_types) == (32, 45, 2)
    assert list(facts.labels) == ["negative", "positive"]


@pytest.mark.parametrize(
    ("values", "layers", "hidden", "positions", "token_types"),
    [
        ({"model_type": "albert", "embedding_size": 8}, 12, 4096, 512, 2),
        ({"model_type": "roberta"}, 12, 768, 510, 0),
        ({"model_type": "roberta", "pad_token_id": 0}, 12, 768, 511, 0),
        ({"model_type": "distilbert", "dim": 24, "n_layers": 3}, 3, 24, 512, 0),
        ({"model_type": "gpt2", "n_embd": 24, "n_layer": 3, "n_positions": 64}, 3, 24, 64, 0),
        ({"model_type": "llama"}, 32, 4096, 2048, 0),
        ({"model_type": "qwen2", "num_hidden_layers": 3}, 3, 4096, 32768, 0),
        ({"model_type": "electra", "type_vocab_size": 3, "max_position_embeddings": 64}, 12, 256, 64, 3),
    ],
)
def test_model_facts_of_every_family_come_from_its_own_keys(
    values: dict[str, Any], layers: int, hidden: int, positions: int, token_types: int
) -> None:
    """The rest is the library's own defaults, which its documentation names."""
    facts = model_facts({"config": values})
    assert (facts.model_type, facts.num_layers, facts.hidden_size) == (values["model_type"], layers, hidden)
    assert (facts.max_positions, facts.token_types) == (positions, token_types)


@pytest.mark.parametrize("model_type", ["roberta", "electra", "llama"])
def test_model_facts_find_the_head_by_the_familys_own_name(model_type: str, tmp_path: Path) -> None:
    section = folder(tmp_path / "bare", model_type=model_type, pad_token_id=1)
    assert not model_facts(section).labels
    section = folder(tmp_path / "whole", head=True, model_type=model_type, pad_token_id=1)
    assert list(model_facts(section).labels) == ["LABEL_0", "LABEL_1"]


def test_model_facts_name_the_pad_ids_where_positions_count_from_them(tmp_path: Path) -> None:
    def of(values: dict[str, Any]) -> list[int]:
        return list(model_facts({"config": values}).pad_token_ids)

    assert of({"model_type": "roberta", "pad_token_id": 3}) == [3]
    assert of({"model_type": "roberta"}) == [0, 1]
    assert of({"model_type": "bert", "pad_token_id": 3}) == []
    assert list(model_facts(folder(tmp_path, model_type="roberta", pad_token_id=2)).pad_token_ids) == [2]


def test_model_facts_of_a_token_objective_ask_for_no_labels(tmp_path: Path) -> None:
    section = folder(tmp_path, head=True)
    assert not model_facts(section, Objective.MASKED_LM).labels


def test_model_facts_labels_that_only_count_are_none(tmp_path: Path) -> None:
    assert not model_facts(folder(tmp_path, id2label={"0": "LABEL_0", "1": "LABEL_1"})).labels


def test_model_facts_unnamed_labels_count_where_the_weights_have_a_head(tmp_path: Path) -> None:
    section = folder(tmp_path, head=True, id2label={"0": "LABEL_0", "1": "LABEL_1", "2": "LABEL_2"})
    assert list(model_facts(section).labels) == ["LABEL_0", "LABEL_1", "LABEL_2"]


def test_model_facts_of_a_new_model_say_how_many_labels_it_asks_for() -> None:
    assert len(model_facts({"config": CONFIG | {"num_labels": 3}}).labels) == 3
    assert not model_facts({"config": CONFIG}).labels


def test_model_facts_of_a_new_model_leave_the_vocabulary_to_the_data() -> None:
    named = model_facts({"pretrained": None, "config": CONFIG})
    unnamed = model_facts({"config": {key: value for key, value in CONFIG.items() if key != "vocab_size"}})
    assert (named.vocabulary_size, unnamed.vocabulary_size) == (45, 0)
    assert named.max_positions == unnamed.max_positions == 32


def test_model_facts_missing_folder_is_named(tmp_path: Path) -> None:
    with pytest.raises(ModelConfigError, match=f"there is no folder {tmp_path / 'absent'}"):
        model_facts({"pretrained": str(tmp_path / "absent")})


def test_model_facts_folder_without_a_config_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ModelConfigError, match=r"has no config\.json"):
        model_facts({"pretrained": str(tmp_path)})


def test_model_facts_folder_with_pickled_weights_only_is_refused(tmp_path: Path) -> None:
    section = folder(tmp_path)
    (tmp_path / "model.safetensors").rename(tmp_path / "pytorch_model.bin")
    with pytest.raises(WeightsError, match=r"pytorch_model\.bin but no model\.safetensors"):
        model_facts(section)


@pytest.mark.parametrize("model_type", ["t5", "vit"])
def test_model_facts_family_that_is_not_built_is_refused_with_the_list(model_type: str) -> None:
    with pytest.raises(UnsupportedModelError, match=f"{model_type}.*bert"):
        model_facts({"config": {"model_type": model_type}})


def test_print_facts_good_model_prints_every_field(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    spec = tmp_path / "spec.json"
    spec.write_text(json.dumps({"model": {"pretrained": None, "config": CONFIG}, **TRAIN}))
    assert print_facts(str(spec)) == 0
    assert json.loads(capsys.readouterr().out) == {
        "model_type": "bert",
        "num_layers": 3,
        "hidden_size": 16,
        "max_positions": 32,
        "vocabulary_size": 45,
        "token_types": 2,
        "labels": [],
        "pad_token_ids": [],
        "has_head": False,
    }


@pytest.mark.parametrize(
    ("text", "complaint"),
    [
        ("{", "cannot be read"),
        ("{}", "cannot be read"),
        ('{"model": {}, "train": {"objective": "classification"}}', "neither model.pretrained nor model.config"),
        ('{"model": {"config": {"hidden_size": 4}}, "train": {"objective": "classification"}}', "model_type"),
        (
            '{"model": {"config": {"model_type": "bert", "hidden_size": "wide"}}, '
            '"train": {"objective": "classification"}}',
            "hidden_size",
        ),
    ],
)
def test_print_facts_bad_model_is_one_line_on_stderr(
    text: str, complaint: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    spec = tmp_path / "spec.json"
    spec.write_text(text)
    assert print_facts(str(spec)) == 2
    out, err = capsys.readouterr()
    assert out == ""
    assert err.startswith("error: ")
    assert err.count("\n") == 1
    assert complaint in err
