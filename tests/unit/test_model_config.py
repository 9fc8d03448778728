import json
from pathlib import Path

import pytest

from stage_worker.models.config import ModelConfigError, TaskNeeds, fit_to_task, new_config, pretrained_config
from stage_worker.models.families import SUPPORTED, UnsupportedModelError, check_supported, family_of
from stage_worker.models.objective import Objective
from stage_worker.models.slices import StageSlice
from tests.unit.tiny_bert import NEEDS, VALUES, load_tiny, slice_of


def test_new_config_takes_vocabulary_and_pad_id_from_the_data() -> None:
    config = new_config({"model_type": "bert"}, TaskNeeds(labels=(), num_labels=1, pad_token_id=3, vocabulary_size=77))
    assert (config.vocab_size, config.pad_token_id) == (77, 3)


def test_new_config_keeps_what_is_given() -> None:
    config = new_config({"model_type": "bert", "vocab_size": 90, "pad_token_id": 1, "hidden_size": 24}, NEEDS)
    assert (config.vocab_size, config.pad_token_id, config.hidden_size) == (90, 1, 24)


@pytest.mark.parametrize(
    ("values", "text"),
    [
        ({}, "has no model_type"),
        ({"model_type": "t5"}, r"'t5' is not supported; use one of: bert"),
        ({"model_type": "bert", "hidden_size": "wide"}, "refused by transformers: .*hidden_size"),
        ({"model_type": "bert", "hidden_size": 50, "num_attention_heads": 4}, "hidden_size is 50, need a multiple of"),
        ({"model_type": "bert", "is_decoder": True}, "is_decoder is true"),
        ({"model_type": "bert", "num_hidden_layers": 0}, "num_hidden_layers is 0, need a number from 1"),
        ({"model_type": "bert", "num_hidden_layers": 10**30}, "num_hidden_layers is 10{30}, need"),
        ({"model_type": "bert", "num_hidden_layers": True}, "refused by transformers: .*num_hidden_layers"),
        ({"model_type": "bert", "num_attention_heads": 0}, "num_attention_heads is 0, need"),
        ({"model_type": "bert", "type_vocab_size": -1}, "type_vocab_size is -1, need"),
        ({"model_type": "bert", "hidden_dropout_prob": 1.5}, "hidden_dropout_prob is 1.5, need a number from 0 to 1"),
        ({"model_type": "bert", "classifier_dropout": -0.5}, "classifier_dropout is -0.5, need"),
        ({"model_type": "bert", "initializer_range": -1.0}, r"initializer_range is -1\.0, need"),
        ({"model_type": "bert", "hidden_act": "nope"}, "hidden_act is 'nope', need one of .*gelu"),
        ({"model_type": "bert", "pad_token_id": 60, "vocab_size": 50}, "pad_token_id is 60, need .* has 50 entries"),
        ({"model_type": "bert", "num_hiden_layers": 2}, "num_hiden_layers is no key .* nearest is num_hidden_layers"),
        ({"model_type": "bert", "auto_map": {"AutoModel": "x.Y"}}, "auto_map is no key of a bert config"),
        ({"model_type": "bert", "position_embedding_type": "relative_key"}, "is 'relative_key', which .* not build"),
    ],
)
def test_new_config_that_no_model_fits_is_refused(values: dict, text: str) -> None:
    with pytest.raises((ModelConfigError, UnsupportedModelError), match=text):
        new_config(values, NEEDS)


def test_new_config_takes_the_keys_of_old_files() -> None:
    old = {"gradient_checkpointing": False, "position_embedding_type": "absolute", "torch_dtype": "float32"}
    assert new_config({"model_type": "bert", "num_hidden_layers": 3, **old}, NEEDS).num_hidden_layers == 3


def test_pretrained_config_of_another_family_is_refused_by_name(tmp_path: Path) -> None:
    (tmp_path / "config.json").write_text(json.dumps({"model_type": "gpt2"}))
    with pytest.raises(UnsupportedModelError, match="'gpt2' is not supported"):
        pretrained_config(tmp_path)


@pytest.mark.parametrize(
    "text", [None, "{", '{"model_type": "nonsense"}', '{"model_type": "bert", "hidden_size": "384"}', "[]"]
)
def test_pretrained_config_that_cannot_be_read_is_refused_naming_the_folder(
    text: str | None, *, tmp_path: Path
) -> None:
    if text is not None:
        (tmp_path / "config.json").write_text(text)
    with pytest.raises(ModelConfigError, match=str(tmp_path)):
        pretrained_config(tmp_path)


def test_fit_to_task_writes_an_exportable_config() -> None:
    config = new_config(VALUES, NEEDS)
    fit_to_task(config, NEEDS, attention="eager")
    stored = json.loads(config.to_json_string())
    assert stored["id2label"] == {"0": "no", "1": "yes"}
    assert stored["label2id"] == {"no": 0, "yes": 1}
    assert stored["dtype"] == "float32"
    assert config._attn_implementation == "eager"


def test_loaded_model_names_its_architecture() -> None:
    assert json.loads(load_tiny().config.to_json_string())["architectures"] == ["BertForSequenceClassification"]


def test_every_supported_family_can_be_had() -> None:
    for name, objectives in SUPPORTED.items():
        found = [family_of(name, objective) for objective in objectives]
        assert [(family.model_type, family.objective) for family in found] == [(name, each) for each in objectives]
    with pytest.raises(UnsupportedModelError, match="'t5' is not supported; use one of: bert"):
        check_supported("t5", Objective.CLASSIFICATION)


@pytest.mark.parametrize("pp", [1, 2, 4])
def test_slices_share_all_blocks(pp: int) -> None:
    model = load_tiny()
    blocks = model.family.blocks(model.config)
    shares = [slice_of(stage, pp=pp).blocks(blocks) for stage in range(pp)]
    assert [item for share in shares for item in share.items()] == list(enumerate(blocks))


def test_slice_outside_the_model_is_refused() -> None:
    blocks = load_tiny().family.blocks(load_tiny().config)
    with pytest.raises(ValueError, match="stage 1 has layers 3 to 5, but the model has 4"):
        StageSlice(stage=1, first_layer=3, num_layers=3, is_first=False, is_last=True).blocks(blocks)
