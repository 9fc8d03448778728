"""What only GPT-2 has; what holds for every family is in test_model_families."""

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file, save_file
from transformers import AutoModelForSequenceClassification

from stage_worker.engine.loss import NOT_COUNTED, loss_sum
from stage_worker.models.config import fit_to_task, pretrained_config
from stage_worker.models.objective import Objective
from tests.unit.tiny_models import NEEDS, load_tiny, rows, run_blocks
from tests.unit.whole_models import save_random, whole_logits

EMBEDDING = "transformer.wte.weight"


def test_gpt2_columns_are_what_a_stage_reads() -> None:
    """A row is classified by its last token, which the last stage finds by the ids."""
    classifier, language_model = load_tiny("gpt2").family, load_tiny("gpt2", Objective.CAUSAL_LM).family
    assert classifier.columns(is_first=True, is_last=False) == {"input_ids", "attention_mask"}
    assert classifier.columns(is_first=False, is_last=False) == {"attention_mask"}
    assert classifier.columns(is_first=False, is_last=True) == {"input_ids", "attention_mask", "labels"}
    assert language_model.columns(is_first=False, is_last=True) == {"attention_mask", "labels"}


@pytest.mark.parametrize(
    "changes",
    [
        {"scale_attn_by_inverse_layer_idx": True},
        {"scale_attn_weights": False},
        {"reorder_and_upcast_attn": True},
        {"n_inner": 24},
        {"activation_function": "relu"},
    ],
    ids=lambda changes: next(iter(changes)),
)
@pytest.mark.parametrize("attention", ["sdpa", "eager"])
def test_gpt2_variants_in_stages_give_the_bits_of_the_whole(
    changes: dict[str, Any], attention: str, *, tmp_path: Path
) -> None:
    whole, batch, hidden = save_random("gpt2", folder=tmp_path, **changes), rows((9, 4, 7)), None
    whole.set_attn_implementation(attention)
    for stage in (0, 1):
        hidden = run_blocks(load_tiny("gpt2", stage=stage, pp=2, folder=tmp_path, attention=attention), batch, hidden)
    assert torch.equal(hidden, whole_logits(whole, batch))


def test_gpt2_classifies_a_row_by_its_last_token_that_is_not_the_pad_id(tmp_path: Path) -> None:
    """The pad id inside a row, at its end, and everywhere."""
    whole, model = save_random("gpt2", folder=tmp_path), load_tiny("gpt2", folder=tmp_path)
    ids_BL = torch.tensor([[7, 0, 9, 0, 0], [7, 8, 9, 6, 5], [0, 0, 0, 0, 0]])
    batch = replace(rows((5, 5, 5)), input_ids_BL=ids_BL)
    logits_BC = run_blocks(model, batch)
    assert torch.equal(logits_BC, whole_logits(whole, batch))
    shorter = replace(batch, input_ids_BL=ids_BL[:, :3], attention_mask_BL=batch.attention_mask_BL[:, :3])
    torch.testing.assert_close(logits_BC[0], run_blocks(model, shorter)[0])


def test_gpt2_without_a_pad_id_gets_that_of_the_data_and_tells_it_in_its_export(tmp_path: Path) -> None:
    """The library refuses to classify more than one row without."""
    whole, batch = save_random("gpt2", folder=tmp_path), rows((9, 4, 7))
    stored = json.loads((tmp_path / "config.json").read_text())
    (tmp_path / "config.json").write_text(json.dumps(stored | {"pad_token_id": None}))
    with pytest.raises(ValueError, match="no padding token"):
        whole_logits(AutoModelForSequenceClassification.from_pretrained(tmp_path), batch)
    config = pretrained_config(tmp_path)
    assert config.pad_token_id is None
    fit_to_task(config, NEEDS, attention="sdpa")
    assert json.loads(config.to_json_string())["pad_token_id"] == NEEDS.pad_token_id
    assert torch.equal(run_blocks(load_tiny("gpt2", folder=tmp_path), batch), whole_logits(whole, batch))


def test_gpt2_reads_files_of_the_bare_model_with_masks_of_old_releases(tmp_path: Path) -> None:
    whole, batch = save_random("gpt2", folder=tmp_path), rows((9, 4, 7))
    file = tmp_path / "model.safetensors"
    tensors = {name.removeprefix("transformer."): tensor for name, tensor in load_file(file).items()}
    tensors |= {f"h.{layer}.attn.bias": torch.ones(1, 1, 32, 32).tril() for layer in range(4)}
    save_file(tensors, file, metadata={"format": "pt"})
    assert torch.equal(run_blocks(load_tiny("gpt2", folder=tmp_path), batch), whole_logits(whole, batch))


def test_gpt2_new_weights_on_the_residual_path_are_smaller_by_the_root_of_their_number() -> None:
    """Radford et al. 2019, section 2.3: scaled by 1/sqrt(N), where N counts residual layers, two in each block."""
    model = load_tiny("gpt2", n_embd=64, n_layer=8)
    for layer in range(8):
        for path in ("attn.c_proj", "mlp.c_proj"):
            deviation = model.held[f"transformer.h.{layer}.{path}.weight"].std().item()
            assert deviation == pytest.approx(0.02 / 16**0.5, rel=0.05), path
        for path in ("attn.c_attn", "mlp.c_fc"):
            deviation = model.held[f"transformer.h.{layer}.{path}.weight"].std().item()
            assert deviation == pytest.approx(0.02, rel=0.05), path


def test_gpt2_causal_lm_reads_its_output_weights_from_the_embedding_and_stores_them_once() -> None:
    first, last = (load_tiny("gpt2", Objective.CAUSAL_LM, stage=stage, pp=2) for stage in (0, 1))
    assert last.uses.blocks_of(EMBEDDING) == (0, 5)
    assert last.model.lm_head.weight is last.held[EMBEDDING]
    assert EMBEDDING in first.state(0)
    assert EMBEDDING not in last.state(1)
    assert last.model.transformer.wpe.weight.device.type == "meta"


def test_gpt2_causal_lm_that_is_not_tied_has_output_weights_of_its_own(tmp_path: Path) -> None:
    whole = save_random("gpt2", Objective.CAUSAL_LM, folder=tmp_path, tie_word_embeddings=False)
    model, batch = load_tiny("gpt2", Objective.CAUSAL_LM, folder=tmp_path), rows((9, 4, 7))
    assert model.uses.blocks_of(EMBEDDING) == (0,)
    assert model.uses.blocks_of("lm_head.weight") == (5,)
    assert torch.equal(run_blocks(model, batch), whole_logits(whole, batch))


def test_gpt2_causal_lm_looks_only_back(tmp_path: Path) -> None:
    model, batch = load_tiny("gpt2", Objective.CAUSAL_LM), rows((9, 4, 7))
    later_BL = batch.input_ids_BL.clone()
    later_BL[0, 5:] = 7
    found, other = run_blocks(model, batch), run_blocks(model, replace(batch, input_ids_BL=later_BL))
    assert torch.equal(found[0, :5], other[0, :5])
    assert not torch.equal(found[0, 5:], other[0, 5:])


def test_gpt2_causal_lm_loss_and_gradients_of_shifted_labels_are_the_librarys_of_unshifted_ones(
    tmp_path: Path,
) -> None:
    """The library shifts by itself and divides by its count, so both are scaled back by it."""
    lengths = (9, 4, 7, 1)
    whole = save_random("gpt2", Objective.CAUSAL_LM, folder=tmp_path)
    model, batch = load_tiny("gpt2", Objective.CAUSAL_LM, folder=tmp_path), rows(lengths)
    ids_BL = batch.input_ids_BL
    shifted_BL = torch.full_like(ids_BL, NOT_COUNTED)
    for row, length in enumerate(lengths):
        shifted_BL[row, : length - 1] = ids_BL[row, 1:length]
    count = sum(lengths) - len(lengths)
    loss = loss_sum(run_blocks(model, batch), shifted_BL)
    unshifted_BL = ids_BL.masked_fill(batch.attention_mask_BL == 0, NOT_COUNTED)
    expected = whole(ids_BL, attention_mask=batch.attention_mask_BL, labels=unshifted_BL, use_cache=False).loss * count
    assert loss.item() == pytest.approx(expected.item(), rel=1e-6)
    loss.backward()
    expected.backward()
    for name, parameter in whole.named_parameters():
        error = torch.linalg.vector_norm(model.held[name].grad - parameter.grad)
        assert error <= 1e-6 * torch.linalg.vector_norm(parameter.grad), name
