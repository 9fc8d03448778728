"""What holds for every family and objective, each against transformers' own whole model."""

import json
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file, save_file
from torch import nn
from transformers import AutoModel

from stage_worker.models.families import FAMILIES, SUPPORTED
from stage_worker.models.loaded import LoadedModel
from stage_worker.models.objective import Objective
from stage_worker.models.variants import most_positions
from tests.unit.tiny_models import VALUES, load_tiny, rows, run_blocks
from tests.unit.whole_models import AUTO, save_random, whole_logits, whole_of

MODELS = [(name, objective) for name, objectives in SUPPORTED.items() for objective in objectives]
each_model = pytest.mark.parametrize(
    ("model_type", "objective"), MODELS, ids=[f"{name}-{objective}" for name, objective in MODELS]
)
ANGLES = "model.rotary_emb."
"""Angles of rotary positions come with every microbatch, so no block holds the module that makes them."""
each_pp = pytest.mark.parametrize("pp", [2, 4])


def load_parts(model_type: str, objective: Objective, *, pp: int, **settings: Any) -> list[LoadedModel]:
    return [load_tiny(model_type, objective, stage=stage, pp=pp, **settings) for stage in range(pp)]


def assert_equal_by_name(found: dict[str, torch.Tensor], expected: dict[str, torch.Tensor]) -> None:
    assert found.keys() == expected.keys()
    for name, tensor in found.items():
        assert torch.equal(tensor, expected[name]), name


@each_model
@pytest.mark.parametrize(("pp", "attention"), [(2, "eager"), (4, "sdpa")])
def test_model_in_stages_gives_the_bits_of_the_whole(
    model_type: str, objective: Objective, pp: int, attention: str, *, tmp_path: Path
) -> None:
    whole = save_random(model_type, objective, folder=tmp_path)
    whole.set_attn_implementation(attention)
    parts = load_parts(model_type, objective, pp=pp, folder=tmp_path, attention=attention)
    for lengths in [(9, 4, 7), (6, 6)]:
        batch, hidden = rows(lengths), None
        for part in parts:
            hidden = run_blocks(part, batch, hidden)
        assert torch.equal(hidden, whole_logits(whole, batch)), lengths


@each_model
@pytest.mark.parametrize(
    ("dtype", "attention"),
    [(torch.float32, "sdpa"), (torch.float32, "eager"), (torch.bfloat16, "sdpa"), (torch.float16, "eager")],
)
def test_model_in_every_compute_type_gives_the_bits_and_gradients_of_the_whole(
    model_type: str, objective: Objective, dtype: torch.dtype, attention: str, *, tmp_path: Path
) -> None:
    whole = save_random(model_type, objective, folder=tmp_path)
    whole.set_attn_implementation(attention)
    model = load_tiny(model_type, objective, folder=tmp_path, attention=attention)
    for parameter in (*whole.parameters(), *model.held.values()):
        parameter.data = parameter.data.to(dtype)
    for lengths in [(9, 4, 7), (6, 6), (5,), (1, 1)]:
        batch = rows(lengths)
        found, expected = run_blocks(model, batch, dtype=dtype), whole_logits(whole, batch)
        assert found.dtype == dtype
        assert torch.equal(found, expected), lengths
        for logits in (found, expected):
            logits.float().pow(2).sum().backward()
        assert_equal_by_name(
            {name: parameter.grad for name, parameter in model.held.items()},
            {name: parameter.grad for name, parameter in whole.named_parameters()},
        )


@each_model
@each_pp
def test_model_saved_and_loaded_in_parts_is_the_same(
    model_type: str, objective: Objective, pp: int, *, tmp_path: Path
) -> None:
    save_random(model_type, objective, folder=tmp_path)
    found: dict[str, torch.Tensor] = {}
    for part in load_parts(model_type, objective, pp=pp, folder=tmp_path):
        (stage,) = part.stages
        assert found.keys().isdisjoint(part.state(stage))
        found |= part.state(stage)
    assert_equal_by_name(found, load_file(tmp_path / "model.safetensors"))


@each_model
def test_model_buffers_are_those_of_the_library(model_type: str, objective: Objective) -> None:
    model = load_tiny(model_type, objective)
    expected = dict(AUTO[objective].from_config(model.config).named_buffers())
    found = {
        f"{prefix}.{name}": buffer for prefix, module in model.modules(0) for name, buffer in module.named_buffers()
    }
    assert_equal_by_name(found, {name: buffer for name, buffer in expected.items() if not name.startswith(ANGLES)})


@each_model
def test_model_blocks_use_every_parameter_and_have_their_own_names(model_type: str, objective: Objective) -> None:
    model = load_tiny(model_type, objective)
    blocks = model.family.blocks(model.config)
    assert {name for uses in model.uses.by_block for name in uses.values()} == set(model.uses.names)
    assert len({block.name for block in blocks}) == len(blocks) == model.config.num_hidden_layers + 2


@each_model
@each_pp
def test_model_parts_have_memory_for_what_they_use_only(
    model_type: str, objective: Objective, pp: int, *, tmp_path: Path
) -> None:
    save_random(model_type, objective, folder=tmp_path)
    for part in load_parts(model_type, objective, pp=pp, folder=tmp_path):
        tensors = [*part.model.parameters(), *part.model.buffers()]
        memory = {id(t): t for t in tensors if t.device.type != "meta"}.values()
        assert {id(p) for p in memory if isinstance(p, nn.Parameter)} == {id(p) for p in part.held.values()}
        assert part.num_parameters == sum(p.numel() for p in memory if isinstance(p, nn.Parameter))


@each_model
def test_model_new_weights_are_the_same_on_every_holder_in_every_layout(model_type: str, objective: Objective) -> None:
    expected = dict(load_tiny(model_type, objective, seed=7).held)
    for pp in (2, 4):
        for part in load_parts(model_type, objective, pp=pp, seed=7):
            for name, parameter in part.held.items():
                assert torch.equal(parameter, expected[name]), (pp, name)
    other = load_tiny(model_type, objective, seed=8).held
    assert any(not torch.equal(parameter, expected[name]) for name, parameter in other.items())


@each_model
def test_model_new_weights_have_the_librarys_distribution(model_type: str, objective: Objective) -> None:
    """Zeros and ones are where the library has them; what is random has the same deviation, as far as n draws tell."""
    model = load_tiny(model_type, objective)
    torch.manual_seed(0)
    library = dict(AUTO[objective].from_config(model.config).named_parameters())
    assert library.keys() == model.held.keys()
    for name, parameter in model.held.items():
        theirs = library[name].detach()
        for constant in (0, 1):
            assert torch.equal(parameter == constant, theirs == constant), (name, constant)
        if parameter.std() > 0:
            assert parameter.std().item() == pytest.approx(theirs.std().item(), rel=5 / theirs.numel() ** 0.5), name


@each_model
def test_model_draws_dropout_where_the_whole_does(model_type: str, objective: Objective) -> None:
    """One generator, seeded once: the same draws in the same places give the same bits."""
    rates: dict[str, Any] = {key: 0.3 for key, value in VALUES[model_type].items() if value == 0.0}
    assert rates
    model, batch = load_tiny(model_type, objective, **rates), rows((9, 4, 7))
    whole = whole_of(model).train()
    model.model.train()
    torch.manual_seed(6)
    found = run_blocks(model, batch)
    torch.manual_seed(6)
    assert torch.equal(found, whole_logits(whole, batch))
    assert not torch.equal(found, whole_logits(whole, batch)), "the next draws are others"


@each_model
def test_model_from_a_bare_folder_gets_a_new_head_alike_in_every_layout(
    model_type: str, objective: Objective, *, tmp_path: Path
) -> None:
    torch.manual_seed(5)
    config = load_tiny(model_type, objective).config
    bare = AutoModel.from_config(config)
    bare.save_pretrained(tmp_path)
    whole = load_tiny(model_type, objective, folder=tmp_path, seed=3)
    stored = load_file(tmp_path / "model.safetensors")
    prefix = whole.family.base_prefix
    kept = {name: parameter for name, parameter in whole.held.items() if name.removeprefix(f"{prefix}.") in stored}
    for name, parameter in kept.items():
        assert torch.equal(parameter, stored[name.removeprefix(f"{prefix}.")]), name
    new = whole.held.keys() - kept.keys()
    assert bool(new) is (objective is not Objective.CAUSAL_LM), "a causal head is the embedding again"
    assert all(name.startswith(whole.family.new_in_a_task) for name in new)
    for pp in (2, 4):
        for part in load_parts(model_type, objective, pp=pp, folder=tmp_path, seed=3):
            for name, parameter in part.held.items():
                assert torch.equal(parameter, whole.held[name]), (pp, name)


@each_model
def test_model_exported_is_loaded_by_the_librarys_auto_class(
    model_type: str, objective: Objective, *, tmp_path: Path
) -> None:
    parts = load_parts(model_type, objective, pp=2, seed=2)
    state = {name: tensor for stage, part in enumerate(parts) for name, tensor in part.state(stage).items()}
    save_file(state, tmp_path / "model.safetensors", metadata={"format": "pt"})
    (tmp_path / "config.json").write_text(parts[0].config.to_json_string())
    model, report = AUTO[objective].from_pretrained(tmp_path, output_loading_info=True)
    assert not any(report.values()), report
    assert [type(model).__name__] == json.loads((tmp_path / "config.json").read_text())["architectures"]
    assert_equal_by_name(dict(model.named_parameters()), state)


@each_model
def test_model_takes_rows_up_to_its_most_positions(model_type: str, objective: Objective) -> None:
    model = load_tiny(model_type, objective)
    most = most_positions(model.config)
    assert run_blocks(model, rows((most,))).isfinite().all()
    if getattr(model.config, "rope_parameters", None) is None:  # rotary positions have no table to fall out of
        with pytest.raises((IndexError, RuntimeError)):
            run_blocks(model, rows((most + 1,)))


def test_every_family_has_a_tiny_model() -> None:
    assert VALUES.keys() >= FAMILIES.keys()
