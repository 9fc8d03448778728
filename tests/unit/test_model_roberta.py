"""What only RoBERTa has: positions behind the pad id, and no token types."""

from dataclasses import replace
from pathlib import Path

import torch

from tests.unit.tiny_models import load_tiny, rows, run_blocks
from tests.unit.whole_models import save_random, whole_logits


def test_roberta_counts_positions_from_its_pad_id(tmp_path: Path) -> None:
    model = load_tiny("roberta")
    seen: list[torch.Tensor] = []
    table = model.model.roberta.embeddings.position_embeddings
    table.register_forward_hook(lambda module, arguments, output: seen.append(arguments[0]))
    run_blocks(model, rows((4, 2)))
    assert seen[0].tolist() == [[1, 2, 3, 4], [1, 2, 0, 0]]


def test_roberta_is_sent_no_token_types(tmp_path: Path) -> None:
    whole = save_random("roberta", folder=tmp_path)
    model = load_tiny("roberta", folder=tmp_path)
    batch = replace(rows((9, 4, 7)), token_type_ids_BL=None)
    assert torch.equal(run_blocks(model, batch), whole_logits(whole, batch))
    assert model.family.columns(is_first=True, is_last=False) == {"input_ids", "attention_mask"}
