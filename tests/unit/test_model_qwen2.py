"""What only Qwen2 has: layers that look back a window of positions. What it has with Llama is tested there."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch

from tests.unit.tiny_models import load_tiny, rows, run_blocks
from tests.unit.whole_models import save_random, whole_logits

FULL, SLIDING = "full_attention", "sliding_attention"
WINDOW = {"use_sliding_window": True, "sliding_window": 3}


@pytest.mark.parametrize(
    "changes",
    [
        {**WINDOW, "max_window_layers": 0},
        {**WINDOW, "max_window_layers": 3},
        {**WINDOW, "max_window_layers": 4},
        {**WINDOW, "layer_types": [SLIDING, FULL, FULL, SLIDING]},
        {**WINDOW, "layer_types": [FULL, SLIDING, SLIDING, SLIDING], "sliding_window": 1},
        {**WINDOW, "max_window_layers": 2, "sliding_window": 9},
        {**WINDOW, "max_window_layers": 2, "sliding_window": 100},
    ],
    ids=["all", "last", "none", "outer", "own_position_only", "as_wide_as_rows", "wider_than_rows"],
)
@pytest.mark.parametrize("pp", [1, 2, 4])
@pytest.mark.parametrize("attention", ["sdpa", "eager"])
def test_qwen2_layers_of_every_stage_look_back_their_own_window(
    changes: dict[str, Any], pp: int, attention: str, *, tmp_path: Path
) -> None:
    whole = save_random("qwen2", folder=tmp_path, **changes)
    whole.set_attn_implementation(attention)
    parts = [load_tiny("qwen2", stage=stage, pp=pp, folder=tmp_path, attention=attention) for stage in range(pp)]
    for lengths in [(9, 4, 7), (9, 9), (2, 1)]:
        batch, hidden = rows(lengths), None
        for part in parts:
            hidden = run_blocks(part, batch, hidden)
        assert torch.equal(hidden, whole_logits(whole, batch)), lengths


@pytest.mark.parametrize("attention", ["sdpa", "eager"])
@pytest.mark.parametrize(("sliding", "reach"), [(1, 2), (2, 4), (4, 8)])
def test_qwen2_row_is_classified_by_as_many_positions_as_its_windows_reach(
    sliding: int, reach: int, attention: str
) -> None:
    """Each of n layers that see 3 positions, their own included, reaches 2 farther back; the other layers pass on."""
    model = load_tiny(
        "qwen2", num_hidden_layers=sliding, layer_types=[SLIDING] * sliding, attention=attention, **WINDOW
    )
    batch = rows((12, 12))
    found = run_blocks(model, batch)
    for position, changes in ((11 - reach - 1, False), (11 - reach, True)):
        ids_BL = batch.input_ids_BL.clone()
        ids_BL[:, position] = torch.where(ids_BL[:, position] == 7, 8, 7)
        assert torch.equal(found, run_blocks(model, replace(batch, input_ids_BL=ids_BL))) is not changes, position


def test_qwen2_makes_the_masks_that_its_layers_take_only() -> None:
    mask_BL = rows((9, 4)).attention_mask_BL
    for kinds in ([FULL] * 4, [SLIDING] * 4, [FULL, SLIDING] * 2):
        model = load_tiny("qwen2", layer_types=kinds, **WINDOW)
        context = model.family.context(model.config, mask_BL, torch.float32)
        assert context.keys() - {"cos", "sin"} == set(kinds)
