"""What only BERT has; what holds for every family is in test_model_families."""

from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file, save_file
from transformers import AutoModelForMaskedLM

from stage_worker.models.microbatch import Microbatch
from stage_worker.models.objective import Objective
from stage_worker.models.tensor_files import WeightsError
from tests.unit.tiny_models import load_tiny, rows, run_blocks
from tests.unit.whole_models import save_random, whole_logits

EMBEDDING, BIAS = "bert.embeddings.word_embeddings.weight", "cls.predictions.bias"


def test_bert_padding_does_not_reach_the_logits() -> None:
    model, batch = load_tiny(), rows((9, 4, 7))
    other_ids_BL = torch.where(batch.attention_mask_BL == 1, batch.input_ids_BL, 7)
    other = Microbatch(batch.row_ids, other_ids_BL, batch.token_type_ids_BL, batch.attention_mask_BL, batch.labels)
    assert torch.equal(run_blocks(model, other), run_blocks(model, batch))


def test_bert_columns_are_what_a_stage_reads() -> None:
    family = load_tiny().family
    assert family.columns(is_first=True, is_last=False) == {"input_ids", "token_type_ids", "attention_mask"}
    assert family.columns(is_first=False, is_last=False) == {"attention_mask"}
    assert family.columns(is_first=False, is_last=True) == {"attention_mask", "labels"}
    assert family.columns(is_first=True, is_last=True) == {"input_ids", "token_type_ids", "attention_mask", "labels"}


def test_bert_masked_lm_reads_its_output_weights_from_the_embedding_and_stores_them_once() -> None:
    first, last = (load_tiny("bert", Objective.MASKED_LM, stage=stage, pp=2) for stage in (0, 1))
    assert last.uses.blocks_of(EMBEDDING) == (0, 5)
    decoder = last.model.cls.predictions.decoder
    assert decoder.weight is last.held[EMBEDDING]
    assert decoder.bias is last.held[BIAS]
    assert EMBEDDING in first.state(0)
    assert EMBEDDING not in last.state(1)
    assert BIAS in last.state(1)
    assert last.model.bert.embeddings.position_embeddings.weight.device.type == "meta"


DECODER = {EMBEDDING: "cls.predictions.decoder.weight", BIAS: "cls.predictions.decoder.bias"}


@pytest.mark.parametrize("kept", ["both", "other"])
@pytest.mark.parametrize("pp", [1, 2])
def test_bert_masked_lm_finds_what_is_tied_under_either_name(kept: str, pp: int, *, tmp_path: Path) -> None:
    save_random("bert", Objective.MASKED_LM, folder=tmp_path)
    file = tmp_path / "model.safetensors"
    tensors = load_file(file)
    expected = dict(tensors)
    for name, other in DECODER.items():
        tensors[other] = tensors[name].clone()
        if kept == "other":
            del tensors[name]
    save_file(tensors, file, metadata={"format": "pt"})
    whole = AutoModelForMaskedLM.from_pretrained(tmp_path)
    for stage in range(pp):
        for name, parameter in load_tiny("bert", Objective.MASKED_LM, stage=stage, pp=pp, folder=tmp_path).held.items():
            assert torch.equal(parameter, expected[name]), name
            assert torch.equal(parameter, whole.get_parameter(name)), name


@pytest.mark.parametrize(("name", "other"), DECODER.items())
def test_bert_masked_lm_of_a_folder_that_breaks_its_tie_is_refused(name: str, other: str, *, tmp_path: Path) -> None:
    """The library would not tie them then, against its own config."""
    save_random("bert", Objective.MASKED_LM, folder=tmp_path)
    file = tmp_path / "model.safetensors"
    tensors = load_file(file)
    save_file(tensors | {other: tensors[name] + 1}, file, metadata={"format": "pt"})
    load_tiny("bert", Objective.MASKED_LM, stage=0, pp=2, folder=tmp_path)
    with pytest.raises(WeightsError, match=f"different values for {other} and {name}, which its config ties"):
        load_tiny("bert", Objective.MASKED_LM, stage=1, pp=2, folder=tmp_path)


def test_bert_masked_lm_that_is_not_tied_has_output_weights_of_its_own(tmp_path: Path) -> None:
    untied = {"tie_word_embeddings": False}
    whole = save_random("bert", Objective.MASKED_LM, folder=tmp_path, **untied)
    model, batch = load_tiny("bert", Objective.MASKED_LM, folder=tmp_path), rows((9, 4, 7))
    assert model.uses.blocks_of(EMBEDDING) == (0,)
    assert torch.equal(run_blocks(model, batch), whole_logits(whole, batch))
