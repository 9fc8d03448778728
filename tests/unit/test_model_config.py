import json
import logging
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
        ({"model_type": "bert", "hidden_size": "wide"}, 'hidden_size is "wide", need a whole number from 1 to'),
        ({"model_type": "bert", "hidden_size": 16.0}, r"hidden_size is 16\.0, need a whole number"),
        ({"model_type": "bert", "is_decoder": "no"}, "refused by transformers: .*is_decoder"),
        ({"model_type": "bert", "hidden_size": 50, "num_attention_heads": 4}, "hidden_size is 50, need a multiple of"),
        ({"model_type": "bert", "is_decoder": True}, "is_decoder is true, need false"),
        ({"model_type": "bert", "num_hidden_layers": 0}, "num_hidden_layers is 0, need a whole number from 1"),
        ({"model_type": "bert", "num_hidden_layers": 10**30}, "num_hidden_layers is 10{30}, need"),
        ({"model_type": "bert", "num_hidden_layers": True}, "num_hidden_layers is true, need a whole"),
        ({"model_type": "qwen2", "num_hidden_layers": 2**31 - 1}, "num_hidden_layers is 2147483647, need .* to 65536"),
        ({"model_type": "bert", "num_labels": 0}, "num_labels is 0, need a whole number from 1"),
        ({"model_type": "bert", "id2label": ["no", "yes"]}, r'id2label is \["no", "yes"\], need a mapping of ids'),
        ({"model_type": "bert", "id2label": {"no": "0"}}, 'id2label is {"no": "0"}, need a mapping of ids'),
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
        ({"model_type": "bert", "hidden_act": "xielu"}, "hidden_act is 'xielu', need one of .*gelu"),
        ({"model_type": "bert", "add_cross_attention": True}, "add_cross_attention is true, need false"),
        ({"model_type": "bert", "chunk_size_feed_forward": 4}, "chunk_size_feed_forward is 4, need 0"),
        ({"model_type": "electra", "is_decoder": True}, "is_decoder is true, need false"),
        ({"model_type": "electra", "embedding_size": 0}, "embedding_size is 0, need"),
        ({"model_type": "distilbert", "dim": 50, "n_heads": 4}, "dim is 50, need a multiple of n_heads, which is 4"),
        ({"model_type": "distilbert", "n_layers": 0}, "n_layers is 0, need a whole number from 1"),
        ({"model_type": "distilbert", "hidden_dim": 0}, "hidden_dim is 0, need"),
        ({"model_type": "distilbert", "seq_classif_dropout": 1.5}, "seq_classif_dropout is 1.5, need"),
        ({"model_type": "distilbert", "attention_dropout": -1}, "attention_dropout is -1, need"),
        ({"model_type": "distilbert", "activation": "nope"}, "activation is 'nope', need one of"),
        ({"model_type": "distilbert", "dim": 16, "hidden_size": 32}, "has both hidden_size and dim, which are one"),
        ({"model_type": "distilbert", "hidden_dropout_prob": 0.0}, "hidden_dropout_prob is no key of a distilbert"),
        ({"model_type": "albert", "num_hidden_layers": 4, "num_hidden_groups": 5}, "num_hidden_groups is 5, need at m"),
        ({"model_type": "albert", "inner_group_num": 0}, "inner_group_num is 0, need"),
        ({"model_type": "albert", "classifier_dropout_prob": 2}, "classifier_dropout_prob is 2, need"),
        ({"model_type": "gpt2", "n_embd": 50, "n_head": 4}, "n_embd is 50, need a multiple of n_head, which is 4"),
        ({"model_type": "gpt2", "n_inner": 0}, "n_inner is 0, need"),
        ({"model_type": "gpt2", "hidden_size": "wide"}, 'hidden_size is "wide", need a whole number'),
        ({"model_type": "gpt2", "num_hidden_layers": 2.5}, "num_hidden_layers is 2.5, need a whole number"),
        ({"model_type": "gpt2", "max_position_embeddings": None}, "max_position_embeddings is null, need a whole"),
        ({"model_type": "gpt2", "resid_pdrop": 2}, "resid_pdrop is 2, need"),
        ({"model_type": "gpt2", "layer_norm_epsilon": -1.0}, "layer_norm_epsilon is -1.0, need"),
        ({"model_type": "gpt2", "activation_function": "nope"}, "activation_function is 'nope', need one of"),
        ({"model_type": "gpt2", "add_cross_attention": True}, "add_cross_attention is true, need false"),
        ({"model_type": "llama", "pretraining_tp": 2}, "pretraining_tp is 2, need 1"),
        ({"model_type": "llama", "hidden_size": 12, "num_attention_heads": 4}, "head is 3 wide, need an even number"),
        ({"model_type": "llama", "rms_norm_eps": -1.0}, "rms_norm_eps is -1.0, need"),
        ({"model_type": "llama", "num_attention_heads": 0}, "num_attention_heads is 0, need a whole number"),
        ({"model_type": "llama", "attention_dropout": None}, "attention_dropout is null, need a number from 0 to 1"),
        ({"model_type": "qwen2", "num_attention_heads": 4}, "need a multiple of num_key_value_heads, which is 32"),
        ({"model_type": "qwen2", "rope_scaling": {"rope_type": "dynamic", "factor": 2.0}}, "is 'dynamic', need one of"),
        ({"model_type": "llama", "rope_theta": 0.0}, r"rope_theta is 0\.0, need a number above 0"),
        ({"model_type": "llama", "rope_theta": "far"}, 'rope_theta is "far", need a number above 0'),
        ({"model_type": "llama", "rope_parameters": {"rope_theta": None}}, "rope_theta is null, need a number above 0"),
        ({"model_type": "llama", "rope_scaling": {"rope_type": "linear", "factor": 0}}, "factor is 0, need a number a"),
        ({"model_type": "llama", "rope_parameters": {"partial_rotary_factor": 0.5}}, "partial_rotary_factor is 0.5, n"),
        (
            {"model_type": "qwen2", "rope_parameters": {"rope_type": "yarn", "factor": 2.0, "mscale": "x"}},
            'mscale is "x", need a number above 0',
        ),
        ({"model_type": "qwen2", "layer_types": ["sliding_attention"] * 32}, "but no sliding_window is used"),
        ({"model_type": "qwen2", "layer_types": ["chunked_attention"] * 32}, "layer_types has 'chunked_attention', ne"),
        ({"model_type": "qwen2", "use_sliding_window": True, "sliding_window": 0}, "sliding_window is 0, need"),
        ({"model_type": "roberta", "pad_token_id": None}, "pad_token_id is null; a roberta counts positions from it"),
        (
            {"model_type": "roberta", "max_position_embeddings": 1},
            "max_position_embeddings is 1, of which .* at least 2",
        ),
    ],
)
def test_new_config_that_no_model_fits_is_refused(values: dict, text: str) -> None:
    with pytest.raises((ModelConfigError, UnsupportedModelError), match=text):
        new_config(values, NEEDS)


def test_new_config_takes_null_where_the_library_chooses() -> None:
    numbers = {"num_key_value_heads": None, "head_dim": None, "num_attention_heads": 32}
    config = new_config({"model_type": "llama", **numbers}, NEEDS)
    assert (config.num_key_value_heads, config.head_dim) == (32, 128)
    assert new_config({"model_type": "gpt2", "n_inner": None}, NEEDS).n_inner is None
    assert new_config({"model_type": "bert", "classifier_dropout": None}, NEEDS).classifier_dropout is None


def test_new_config_takes_rotary_numbers_by_their_old_names() -> None:
    config = new_config({"model_type": "llama", "rope_theta": 500.0}, NEEDS)
    assert config.rope_parameters == {"rope_type": "default", "rope_theta": 500.0}


def test_new_config_takes_the_keys_of_old_files() -> None:
    old = {"gradient_checkpointing": False, "position_embedding_type": "absolute", "torch_dtype": "float32"}
    assert new_config({"model_type": "bert", "num_hidden_layers": 3, **old}, NEEDS).num_hidden_layers == 3


def test_new_config_takes_a_number_by_the_librarys_name_or_the_familys_own() -> None:
    config = new_config({"model_type": "distilbert", "hidden_size": 24, "n_layers": 3}, NEEDS)
    assert (config.dim, config.num_hidden_layers) == (24, 3)


@pytest.mark.parametrize(
    ("model_type", "vocabulary", "begin", "end"),
    [("roberta", 45, 0, 2), ("roberta", 2, 0, None), ("gpt2", 45, None, None), ("gpt2", 50257, 50256, 50256)],
)
def test_new_config_names_no_begin_or_end_token_outside_the_vocabulary(
    model_type: str, vocabulary: int, begin: int | None, end: int | None, *, caplog: pytest.LogCaptureFixture
) -> None:
    needs = TaskNeeds(labels=(), num_labels=1, pad_token_id=0, vocabulary_size=vocabulary)
    monitored = logging.getLogger("transformers")
    monitored.addHandler(caplog.handler)
    try:
        config = new_config({"model_type": model_type}, needs)
    finally:
        monitored.removeHandler(caplog.handler)
    assert (config.bos_token_id, config.eos_token_id) == (begin, end)
    assert not caplog.records
    assert new_config({"model_type": model_type, "eos_token_id": 1}, needs).eos_token_id == 1


def test_new_config_whose_positions_follow_a_pad_id_that_nobody_named_is_refused() -> None:
    """Its facts are told before the data are known, and would promise too many positions."""
    needs = TaskNeeds(labels=(), num_labels=1, pad_token_id=2, vocabulary_size=45)
    with pytest.raises(ModelConfigError, match=r"names no pad_token_id, from which a roberta .* set it to 2"):
        new_config({"model_type": "roberta"}, needs)
    assert new_config({"model_type": "roberta", "pad_token_id": 2}, needs).pad_token_id == 2


@pytest.mark.parametrize(
    ("text", "told"),
    [("[]", "is no mapping of names to values"), ("3", "is no mapping"), ("{", "cannot be read: Expecting property")],
)
def test_pretrained_config_that_is_none_is_refused_by_its_file(text: str, told: str, tmp_path: Path) -> None:
    (tmp_path / "config.json").write_text(text)
    with pytest.raises(ModelConfigError, match=f"^model.pretrained: {tmp_path}/config.json {told}"):
        pretrained_config(tmp_path)


def test_pretrained_config_of_a_variant_that_transformers_builds_no_more_is_refused(tmp_path: Path) -> None:
    (tmp_path / "config.json").write_text(json.dumps({"model_type": "bert", "position_embedding_type": "relative_key"}))
    with pytest.raises(UnsupportedModelError, match='position_embedding_type is "relative_key", need "absolute"'):
        pretrained_config(tmp_path)


@pytest.mark.parametrize("values", [{"model_type": "t5", "d_ff": "wide"}, {"model_type": "nonsense"}])
def test_pretrained_config_of_another_family_is_refused_by_name(values: dict[str, str], tmp_path: Path) -> None:
    (tmp_path / "config.json").write_text(json.dumps(values))
    supported = f"'{values['model_type']}' is not supported; use one of: {', '.join(SUPPORTED)}"
    with pytest.raises(UnsupportedModelError, match=supported):
        pretrained_config(tmp_path)


def test_objective_that_a_family_has_no_head_for_is_refused_naming_both_lists() -> None:
    with pytest.raises(UnsupportedModelError, match=r"masked_lm is not built for .*'albert'.*: classification; .*bert"):
        new_config({"model_type": "albert"}, NEEDS, Objective.MASKED_LM)


@pytest.mark.parametrize(
    "text", [None, "{", '{"hidden_size": 16}', '{"model_type": "bert", "hidden_size": "384"}', "[]"]
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


def test_fit_to_task_says_what_the_head_learns_and_what_pads() -> None:
    regression = TaskNeeds(labels=(), num_labels=1, pad_token_id=3, vocabulary_size=45)
    config = new_config(
        {"model_type": "bert", "pad_token_id": None, "problem_type": "multi_label_classification"}, NEEDS
    )
    fit_to_task(config, NEEDS, attention="sdpa")
    assert (config.problem_type, config.num_labels, config.pad_token_id) == ("single_label_classification", 2, 0)
    fit_to_task(config, regression, attention="sdpa")
    assert (config.problem_type, config.num_labels, config.pad_token_id) == ("regression", 1, 3)


def test_fit_to_task_of_positions_that_follow_another_pad_id_is_refused() -> None:
    config = new_config({"model_type": "roberta", "pad_token_id": 1}, NEEDS)
    with pytest.raises(ModelConfigError, match=r"pad_token_id of the model is 1, that of data\.tokenizer is 0"):
        fit_to_task(config, NEEDS, attention="sdpa")


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
