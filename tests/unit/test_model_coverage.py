"""Folders that a model cannot be filled from are refused from the headers of their files, before any worker starts."""

import json
from collections.abc import Callable, Iterable
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file, save_file
from transformers import (
    AutoConfig,
    AutoModelForCausalLM,
    AutoModelForMaskedLM,
    AutoModelForSequenceClassification,
    BertModel,
)

from stage_worker.facts import model_facts
from stage_worker.models.config import pretrained_config
from stage_worker.models.coverage import check_coverage
from stage_worker.models.objective import Objective
from stage_worker.models.skeleton import build_skeleton
from stage_worker.models.tensor_files import WeightsError
from stage_worker.models.weights import WeightsFolder
from tests.unit.tiny_models import VALUES, VOCABULARY

Tensors = dict[str, torch.Tensor]
KINDS = {
    Objective.CLASSIFICATION: AutoModelForSequenceClassification,
    Objective.MASKED_LM: AutoModelForMaskedLM,
    Objective.CAUSAL_LM: AutoModelForCausalLM,
}
ALL = [(model_type, Objective.CLASSIFICATION) for model_type in VALUES]
ALL += [("bert", Objective.MASKED_LM), ("gpt2", Objective.CAUSAL_LM)]


def save(path: Path, model_type: str, objective: Objective = Objective.CLASSIFICATION) -> Path:
    config = AutoConfig.for_model(model_type, vocab_size=VOCABULARY, pad_token_id=0, **VALUES[model_type])
    KINDS[objective].from_config(config).save_pretrained(path)
    return path


def change(folder: Path, edit: Callable[[Tensors], None]) -> None:
    tensors = load_file(folder / "model.safetensors")
    edit(tensors)
    save_file(tensors, folder / "model.safetensors")


def refusal(folder: Path, objective: Objective = Objective.CLASSIFICATION) -> str:
    with pytest.raises(WeightsError) as caught:
        model_facts({"pretrained": str(folder)}, objective)
    return str(caught.value)


def refusals(folder: Path, objective: Objective, files: Iterable[Tensors]) -> list[str]:
    """Return what is said of a folder with each of ``files`` in place of its own."""
    skeleton = build_skeleton(pretrained_config(folder, objective), objective)
    blocks = range(len(skeleton.blocks))
    messages = []
    for tensors in files:
        save_file(tensors, folder / "model.safetensors")
        with WeightsFolder(folder, base_prefix=skeleton.family.base_prefix) as weights:
            with pytest.raises(WeightsError) as caught:
                check_coverage(skeleton, blocks, weights)
            messages.append(str(caught.value))
    return messages


@pytest.mark.parametrize(("model_type", "objective"), ALL)
def test_folder_of_every_family_as_the_library_saves_it_is_whole(
    model_type: str, objective: Objective, tmp_path: Path
) -> None:
    facts = model_facts({"pretrained": str(save(tmp_path, model_type, objective))}, objective)
    assert facts.num_layers == 4


@pytest.mark.parametrize(("model_type", "objective"), ALL)
def test_folder_of_every_family_that_lacks_any_one_tensor_of_its_body_is_refused_by_its_name(
    model_type: str, objective: Objective, tmp_path: Path
) -> None:
    save(tmp_path, model_type, objective)
    kept = load_file(tmp_path / "model.safetensors")
    prefix = KINDS[objective].from_pretrained(tmp_path).base_model_prefix
    body = [name for name in kept if name.startswith(f"{prefix}.") and ".pooler." not in name]
    assert len(body) > 10
    lacking = ({key: tensor for key, tensor in kept.items() if key != name} for name in body)
    expected = [f"{tmp_path} lacks {name}; it is not a whole {model_type}" for name in body]
    assert refusals(tmp_path, objective, lacking) == expected


@pytest.mark.parametrize(("model_type", "objective"), ALL)
def test_folder_of_every_family_with_any_one_tensor_of_another_shape_is_refused_with_both_shapes(
    model_type: str, objective: Objective, tmp_path: Path
) -> None:
    save(tmp_path, model_type, objective)
    kept = load_file(tmp_path / "model.safetensors")
    others = {name: torch.zeros(tensor.shape[0] + 1, *tensor.shape[1:]) for name, tensor in kept.items()}
    expected = [
        f"{name} has shape {tuple(other.shape)} in {tmp_path}, "
        f"the model of its config.json needs {tuple(kept[name].shape)}"
        for name, other in others.items()
    ]
    assert refusals(tmp_path, objective, (kept | {name: other} for name, other in others.items())) == expected


def test_folder_that_lacks_many_tensors_is_refused_with_the_first_ones_and_a_count(tmp_path: Path) -> None:
    save_file({"pooler.dense.bias": torch.zeros(16)}, save(tmp_path, "bert") / "model.safetensors")
    expected = "bert.embeddings.word_embeddings.weight, bert.embeddings.position_embeddings.weight, "
    expected += "bert.embeddings.token_type_embeddings.weight and 66 more; it is not a whole bert"
    assert expected in refusal(tmp_path)


def test_folder_with_a_head_of_another_size_than_its_config_says_is_refused(tmp_path: Path) -> None:
    save(tmp_path, "bert")
    config = json.loads((tmp_path / "config.json").read_text())
    labels = {"0": "a", "1": "b", "2": "c"}
    (tmp_path / "config.json").write_text(json.dumps(config | {"id2label": labels}))
    assert "classifier.weight has shape (2, 16)" in (message := refusal(tmp_path))
    assert message.endswith("needs (3, 16)")


@pytest.mark.parametrize(("element_type", "name"), [(torch.int8, "I8"), (torch.float8_e4m3fn, "F8_E4M3")])
def test_folder_with_a_quantised_tensor_is_refused_with_its_element_type(
    element_type: torch.dtype, name: str, *, tmp_path: Path
) -> None:
    weight = "bert.encoder.layer.2.attention.self.query.weight"
    change(save(tmp_path, "bert"), lambda tensors: tensors.update({weight: (tensors[weight] * 100).to(element_type)}))
    assert f"{weight} is stored as {name} in {tmp_path}, need one of F64, F32, F16, BF16" in refusal(tmp_path)


@pytest.mark.parametrize("element_type", [torch.float64, torch.float16, torch.bfloat16])
def test_folder_of_another_floating_type_than_fp32_is_whole(element_type: torch.dtype, tmp_path: Path) -> None:
    save(tmp_path, "bert")
    change(tmp_path, lambda tensors: tensors.update({name: each.to(element_type) for name, each in tensors.items()}))
    model_facts({"pretrained": str(tmp_path)})


@pytest.mark.parametrize(
    ("model_type", "objective", "tied", "own"),
    [
        (
            "bert",
            Objective.MASKED_LM,
            "cls.predictions.decoder.weight",
            "bert.embeddings.word_embeddings.weight",
        ),
        ("gpt2", Objective.CAUSAL_LM, "lm_head.weight", "transformer.wte.weight"),
    ],
)
def test_folder_with_two_values_for_a_tied_weight_is_refused(
    model_type: str, objective: Objective, tied: str, own: str, *, tmp_path: Path
) -> None:
    save(tmp_path, model_type, objective)
    change(tmp_path, lambda tensors: tensors.update({tied: tensors[own].clone()}))
    model_facts({"pretrained": str(tmp_path)}, objective)
    change(tmp_path, lambda tensors: tensors.update({tied: tensors[own] + 1}))
    assert f"has different values for {tied} and {own}, which its config ties" in refusal(tmp_path, objective)
    change(tmp_path, lambda tensors: tensors.pop(own))
    model_facts({"pretrained": str(tmp_path)}, objective)


def test_folder_of_a_bare_model_is_whole_and_has_no_head(tmp_path: Path) -> None:
    BertModel(AutoConfig.for_model("bert", vocab_size=VOCABULARY, **VALUES["bert"])).save_pretrained(tmp_path)
    assert not model_facts({"pretrained": str(tmp_path)}).labels
    change(tmp_path, lambda tensors: tensors.pop("encoder.layer.3.output.dense.bias"))
    assert "lacks bert.encoder.layer.3.output.dense.bias" in refusal(tmp_path)


def test_refusal_of_a_folder_begins_with_the_key_that_names_it(tmp_path: Path) -> None:
    change(save(tmp_path, "bert"), lambda tensors: tensors.pop("bert.encoder.layer.0.output.dense.bias"))
    assert refusal(tmp_path).startswith(f"model.pretrained: {tmp_path} lacks ")


def test_folder_is_checked_without_reading_values_where_nothing_is_tied(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("stage_worker.models.weights.WeightsFolder.read", lambda *_: pytest.fail("values were read"))
    model_facts({"pretrained": str(save(tmp_path, "bert"))})
