"""What only DistilBERT has: positions that may begin as sines and cosines, and no token types."""

import math
from dataclasses import replace
from pathlib import Path

import pytest
import torch

from tests.unit.tiny_models import load_tiny, rows, run_blocks
from tests.unit.whole_models import save_random, whole_logits


def test_distilbert_sinusoidal_positions_begin_as_those_of_the_paper() -> None:
    """Vaswani et al. 2017, section 3.5: PE(pos, 2i) = sin(pos / 10000^(2i/d)), PE(pos, 2i+1) its cosine."""
    model = load_tiny("distilbert", sinusoidal_pos_embds=True)
    table = model.held["distilbert.embeddings.position_embeddings.weight"]
    for position in (0, 1, 31):
        for pair in (0, 3, 7):
            angle = position / 10000 ** (2 * pair / 16)
            assert table[position, 2 * pair].item() == pytest.approx(math.sin(angle), abs=1e-6)
            assert table[position, 2 * pair + 1].item() == pytest.approx(math.cos(angle), abs=1e-6)


def test_distilbert_is_sent_no_token_types(tmp_path: Path) -> None:
    whole = save_random("distilbert", folder=tmp_path)
    model = load_tiny("distilbert", folder=tmp_path)
    batch = replace(rows((9, 4, 7)), token_type_ids_BL=None)
    assert torch.equal(run_blocks(model, batch), whole_logits(whole, batch))
    assert model.family.columns(is_first=True, is_last=False) == {"input_ids", "attention_mask"}
