"""What only ELECTRA has: embeddings that may be narrower than the layers."""

from pathlib import Path

import pytest
import torch

from tests.unit.tiny_models import load_tiny, rows, run_blocks
from tests.unit.whole_models import save_random, whole_logits


@pytest.mark.parametrize("width", [8, 16, 24])
def test_electra_embeddings_are_projected_where_their_width_is_another(width: int, *, tmp_path: Path) -> None:
    whole, batch, hidden = save_random("electra", folder=tmp_path, embedding_size=width), rows((9, 4, 7)), None
    for stage in (0, 1):
        part = load_tiny("electra", stage=stage, pp=2, folder=tmp_path)
        hidden = run_blocks(part, batch, hidden)
        assert ("electra.embeddings_project.weight" in part.held) is (stage == 0 and width != 16)
    assert torch.equal(hidden, whole_logits(whole, batch))
