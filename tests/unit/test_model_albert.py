"""What only ALBERT has: groups of layers with one set of parameters."""

from pathlib import Path

import pytest
import torch

from tests.unit.tiny_models import load_tiny, rows, run_blocks
from tests.unit.whole_models import save_random, whole_logits

QUERY = "albert.encoder.albert_layer_groups.{}.albert_layers.0.attention.query.weight"


@pytest.mark.parametrize(
    ("layers", "groups", "inner", "uses"),
    [
        (4, 1, 1, [(1, 2, 3, 4)]),
        (4, 2, 1, [(1, 2), (3, 4)]),
        (4, 4, 1, [(1,), (2,), (3,), (4,)]),
        (4, 1, 2, [(1, 2, 3, 4)]),
        (6, 4, 1, [(1, 2), (3,), (4, 5), (6,)]),
    ],
)
@pytest.mark.parametrize("pp", [1, 2])
def test_albert_layers_use_the_group_that_the_library_takes(
    layers: int, groups: int, inner: int, uses: list[tuple[int, ...]], pp: int, *, tmp_path: Path
) -> None:
    sizes = {"num_hidden_layers": layers, "num_hidden_groups": groups, "inner_group_num": inner}
    whole, batch, hidden = save_random("albert", folder=tmp_path, **sizes), rows((9, 4, 7)), None
    for stage in range(pp):
        part = load_tiny("albert", stage=stage, pp=pp, folder=tmp_path)
        hidden = run_blocks(part, batch, hidden)
        assert [part.uses.blocks_of(QUERY.format(group)) for group in range(groups)] == uses
    assert torch.equal(hidden, whole_logits(whole, batch))


def test_albert_group_is_stored_by_its_first_stage_only() -> None:
    first, second = (load_tiny("albert", stage=stage, pp=2) for stage in (0, 1))
    assert QUERY.format(0) in first.state(0)
    assert QUERY.format(0) in second.held
    assert QUERY.format(0) not in second.state(1)
