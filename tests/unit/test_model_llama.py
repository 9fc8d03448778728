"""What only Llama has, or has with Qwen2; what holds for every family is in test_model_families."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch

from tests.unit.tiny_models import load_tiny, rows, run_blocks
from tests.unit.whole_models import save_random, whole_logits

ROTARY = ["llama", "qwen2"]
_LLAMA3 = {"low_freq_factor": 1.0, "high_freq_factor": 4.0, "original_max_position_embeddings": 16}
ANGLES: dict[str, dict[str, Any]] = {
    "theta": {"rope_theta": 500.0},
    "linear": {"rope_scaling": {"rope_type": "linear", "factor": 2.0}},
    "llama3": {"rope_scaling": {"rope_type": "llama3", "factor": 8.0, **_LLAMA3}},
    "yarn": {"rope_scaling": {"rope_type": "yarn", "factor": 2.0, "original_max_position_embeddings": 16}},
}


@pytest.mark.parametrize("model_type", ROTARY)
def test_rotary_columns_are_what_a_stage_reads(model_type: str) -> None:
    family = load_tiny(model_type).family
    assert family.columns(is_first=True, is_last=False) == {"input_ids", "attention_mask"}
    assert family.columns(is_first=False, is_last=False) == {"attention_mask"}
    assert family.columns(is_first=False, is_last=True) == {"input_ids", "attention_mask", "labels"}


@pytest.mark.parametrize(
    "changes",
    [
        *ANGLES.values(),
        {"head_dim": 6},
        {"num_key_value_heads": 1},
        {"num_key_value_heads": 4},
        {"attention_bias": True, "mlp_bias": True},
    ],
    ids=[*ANGLES, "head_dim", "one_key", "all_keys", "biases"],
)
@pytest.mark.parametrize("attention", ["sdpa", "eager"])
def test_llama_variants_in_stages_give_the_bits_of_the_whole(
    changes: dict[str, Any], attention: str, *, tmp_path: Path
) -> None:
    whole, batch, hidden = save_random("llama", folder=tmp_path, **changes), rows((9, 4, 7)), None
    whole.set_attn_implementation(attention)
    for stage in (0, 1):
        hidden = run_blocks(load_tiny("llama", stage=stage, pp=2, folder=tmp_path, attention=attention), batch, hidden)
    assert torch.equal(hidden, whole_logits(whole, batch))


@pytest.mark.parametrize("model_type", ROTARY)
def test_rotary_angles_are_those_of_the_paper(model_type: str) -> None:
    """Su et al. 2021 (arXiv 2104.09864), section 3.2.2: position m turns pair i by m / theta^(2i/d)."""
    model = load_tiny(model_type, rope_theta=100.0)
    context = model.family.context(model.config, torch.ones(2, 7, dtype=torch.long), torch.float32)
    pairs_E = torch.tensor([0.0, 1.0], dtype=torch.float64).repeat(2)  # heads are 4 wide; its halves turn together
    angles_LE = torch.arange(7, dtype=torch.float64).unsqueeze(1) / 100.0 ** (2 * pairs_E / 4)
    torch.testing.assert_close(context["cos"], angles_LE.cos().float().unsqueeze(0), rtol=0, atol=1e-6)
    torch.testing.assert_close(context["sin"], angles_LE.sin().float().unsqueeze(0), rtol=0, atol=1e-6)


@pytest.mark.parametrize("model_type", ROTARY)
@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_rotary_angles_of_far_positions_are_computed_in_fp32_and_then_rounded(
    model_type: str, dtype: torch.dtype
) -> None:
    """In bf16 itself position 1001 would be turned as 1000 is."""
    model, mask_BL = load_tiny(model_type), torch.ones(1, 1002, dtype=torch.long)
    exact = model.family.context(model.config, mask_BL, torch.float32)
    rounded = model.family.context(model.config, mask_BL, dtype)
    for name in ("cos", "sin"):
        assert rounded[name].dtype == dtype
        assert torch.equal(rounded[name], exact[name].to(dtype))
    assert not torch.equal(rounded["cos"][0, 1001], rounded["cos"][0, 1000])


@pytest.mark.parametrize("model_type", ROTARY)
def test_rotary_classifies_a_row_by_its_last_token_that_is_not_the_pad_id(model_type: str, *, tmp_path: Path) -> None:
    """The pad id inside a row, at its end, and everywhere; its own embedding is not trained."""
    whole, model = save_random(model_type, folder=tmp_path), load_tiny(model_type, folder=tmp_path)
    batch = replace(rows((5, 5, 5)), input_ids_BL=torch.tensor([[7, 0, 9, 0, 0], [7, 8, 9, 6, 5], [0, 0, 0, 0, 0]]))
    found, expected = run_blocks(model, batch), whole_logits(whole, batch)
    assert torch.equal(found, expected)
    for logits in (found, expected):
        logits.pow(2).sum().backward()
    gradient = model.held["model.embed_tokens.weight"].grad
    assert torch.equal(gradient, whole.model.embed_tokens.weight.grad)
    assert not gradient[0].any()
    assert gradient[7].any()


@pytest.mark.parametrize("model_type", ROTARY)
def test_rotary_module_of_the_whole_model_gets_no_memory(model_type: str) -> None:
    """Its buffers are in no file; the context has what it would give."""
    assert load_tiny(model_type).model.model.rotary_emb.inv_freq.device.type == "meta"
