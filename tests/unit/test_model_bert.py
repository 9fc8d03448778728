"""A model called block by block against transformers' own forward."""

import pytest
import torch

from stage_worker.models.family import Inputs
from stage_worker.models.microbatch import Microbatch
from tests.unit.tiny_bert import load_tiny


def rows(lengths: tuple[int, ...]) -> Microbatch:
    torch.manual_seed(1)
    width = max(lengths)
    mask_BL = torch.tensor([[1] * length + [0] * (width - length) for length in lengths])
    ids_BL = torch.randint(5, 45, mask_BL.shape) * mask_BL
    types_BL = (torch.arange(width) > width // 2).long() * mask_BL
    return Microbatch(tuple(range(len(lengths))), ids_BL, types_BL, mask_BL, torch.zeros(len(lengths)))


@pytest.mark.parametrize("attention", ["sdpa", "eager"])
@pytest.mark.parametrize("lengths", [(9, 4, 7), (6, 6)], ids=["padded", "full"])
def test_bert_in_blocks_gives_the_bits_of_the_whole(attention: str, lengths: tuple[int, ...]) -> None:
    whole = load_tiny(attention=attention)
    batch = rows(lengths)
    with torch.no_grad():
        expected = whole.model(
            input_ids=batch.input_ids_BL,
            token_type_ids=batch.token_type_ids_BL,
            attention_mask=batch.attention_mask_BL,
        ).logits
        hidden = None
        for stage in range(4):
            part = load_tiny(stage=stage, pp=4, attention=attention)
            context = part.family.context(part.config, batch.attention_mask_BL, torch.float32)
            for block in part.stages[stage].blocks.values():
                hidden = block.call(part.model, hidden, Inputs(batch, context))
    assert torch.equal(hidden, expected)


def test_bert_padding_does_not_reach_the_logits() -> None:
    model, batch = load_tiny(), rows((9, 4, 7))
    context = model.family.context(model.config, batch.attention_mask_BL, torch.float32)
    other_ids_BL = torch.where(batch.attention_mask_BL == 1, batch.input_ids_BL, 7)
    other = Microbatch(batch.row_ids, other_ids_BL, batch.token_type_ids_BL, batch.attention_mask_BL, batch.labels)

    def logits(rows: Microbatch) -> torch.Tensor:
        hidden = None
        with torch.no_grad():
            for block in model.stages[0].blocks.values():
                hidden = block.call(model.model, hidden, Inputs(rows, context))
        return hidden

    assert torch.equal(logits(other), logits(batch))


def test_bert_blocks_cover_every_parameter_once() -> None:
    model = load_tiny()
    prefixes = [prefix for block in model.family.blocks(model.config) for prefix in block.modules]
    owners = {name: [prefix for prefix in prefixes if name.startswith(f"{prefix}.")] for name in model.uses.names}
    assert all(len(found) == 1 for found in owners.values())
    assert len(model.family.blocks(model.config)) == 6


def test_bert_columns_are_what_a_stage_reads() -> None:
    family = load_tiny().family
    assert family.columns(is_first=True, is_last=False) == {"input_ids", "token_type_ids", "attention_mask"}
    assert family.columns(is_first=False, is_last=False) == {"attention_mask"}
    assert family.columns(is_first=False, is_last=True) == {"attention_mask", "labels"}
    assert family.columns(is_first=True, is_last=True) == {"input_ids", "token_type_ids", "attention_mask", "labels"}
