"""Shards of a checkpoint."""

import hashlib
import json
from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from safetensors import safe_open
from safetensors.torch import load_file, save_file
from transformers import AutoModelForSequenceClassification

from stage_worker.checkpoint import config_json, shards_of
from stage_worker.engine.agreed import Agreed
from stage_worker.engine.failure import NonFiniteError
from stage_worker.models.loaded import LoadedModel
from stage_worker.saving import Saved, Saving, WrittenShard
from tests.unit.tiny_bert import load_tiny

AGREED = Agreed(updates_applied=7)


def write_shards(
    folder: Path, model: LoadedModel, *, optimizer_state: Callable[[int], dict[str, torch.Tensor]], agreed: Agreed
) -> tuple[WrittenShard, ...]:
    told: list[Saved] = []
    saving = Saving()
    saving.begin(folder, shards_of(model, optimizer_state=optimizer_state, agreed=agreed), told=told.append)
    saving.finish()
    (saved,) = told
    if saved.error:
        raise OSError(saved.error)
    return saved.shards


def moments(stage: int) -> dict[str, torch.Tensor]:
    return {"classifier.weight.exp_avg": torch.full((2, 16), float(stage))}


def test_checkpoint_of_two_stages_is_one_whole_model(tmp_path: Path) -> None:
    parts = [load_tiny(stage=stage, pp=2) for stage in (0, 1)]
    for part in parts:
        write_shards(tmp_path, part, optimizer_state=moments, agreed=AGREED)
    assert sorted(path.name for path in tmp_path.iterdir()) == [
        "config.json",
        "optimizer-000.safetensors",
        "optimizer-001.safetensors",
        "stage-000.safetensors",
        "stage-001.safetensors",
    ]
    saved = load_file(tmp_path / "stage-000.safetensors") | load_file(tmp_path / "stage-001.safetensors")
    for stage in (0, 1):
        (tmp_path / f"stage-00{stage}.safetensors").unlink()
        (tmp_path / f"optimizer-00{stage}.safetensors").unlink()
    save_file(saved, tmp_path / "model.safetensors", metadata={"format": "pt"})
    model, told = AutoModelForSequenceClassification.from_pretrained(tmp_path, output_loading_info=True)
    assert not any(told.values())
    assert type(model).__name__ == "BertForSequenceClassification"
    whole = load_tiny()
    assert all(torch.equal(tensor, model.state_dict()[name]) for name, tensor in whole.state(0).items())


def test_checkpoint_shards_are_described_as_they_lie_on_the_disk(tmp_path: Path) -> None:
    shards = write_shards(tmp_path / "step-3", load_tiny(stage=0, pp=2), optimizer_state=moments, agreed=AGREED)
    assert [(shard.file, shard.kind, shard.stage) for shard in shards] == [
        ("stage-000.safetensors", "parameters", 0),
        ("optimizer-000.safetensors", "optimizer", 0),
        ("config.json", "model", 0),
    ]
    for shard in shards:
        content = (tmp_path / "step-3" / shard.file).read_bytes()
        assert (len(content), hashlib.sha256(content).hexdigest()) == (shard.num_bytes, shard.sha256)


def test_checkpoint_of_a_worker_with_two_stages_has_shards_of_both_and_no_other(tmp_path: Path) -> None:
    """The worker of a V that holds the first and the last of four stages."""
    shards = write_shards(tmp_path, load_tiny(stage=(0, 3), pp=4), optimizer_state=moments, agreed=AGREED)
    assert [(shard.file, shard.stage) for shard in shards] == [
        ("stage-000.safetensors", 0),
        ("optimizer-000.safetensors", 0),
        ("config.json", 0),
        ("stage-003.safetensors", 3),
        ("optimizer-003.safetensors", 3),
    ]
    first, last = (set(load_file(tmp_path / f"stage-00{stage}.safetensors")) for stage in (0, 3))
    assert {name.split(".")[1] for name in first if name.startswith("bert.")} == {"embeddings", "encoder"}
    assert not first & last
    assert {name for name in last if name.startswith("classifier")} == {"classifier.weight", "classifier.bias"}
    moments_3 = load_file(tmp_path / "optimizer-003.safetensors")["classifier.weight.exp_avg"]
    assert torch.equal(moments_3, torch.full((2, 16), 3.0))


@pytest.mark.parametrize("value", [float("nan"), float("inf"), -float("inf")])
@pytest.mark.parametrize("spoilt", ["weight", "moment"])
def test_checkpoint_of_what_is_not_finite_is_refused_and_nothing_is_written(
    spoilt: str, value: float, *, tmp_path: Path
) -> None:
    model = load_tiny(stage=1, pp=2)
    state = moments(1)
    name, tensor = {
        "weight": ("classifier.bias", model.held["classifier.bias"].detach()),
        "moment": ("classifier.weight.exp_avg", state["classifier.weight.exp_avg"]),
    }[spoilt]
    tensor.view(-1)[-1] = value
    with pytest.raises(NonFiniteError, match=rf"^{name} on stage 1 is not finite") as caught:
        write_shards(tmp_path, model, optimizer_state=lambda _: state, agreed=AGREED)
    assert caught.value.stage == 1
    assert not list(tmp_path.iterdir())


def test_checkpoint_optimizer_shard_holds_moments_and_the_count_of_updates(tmp_path: Path) -> None:
    write_shards(tmp_path, load_tiny(stage=1, pp=2), optimizer_state=moments, agreed=AGREED)
    with safe_open(tmp_path / "optimizer-001.safetensors", framework="pt") as file:
        assert json.loads(file.metadata()["agreed"]) == {"updates_applied": 7}
        assert torch.equal(file.get_tensor("classifier.weight.exp_avg"), torch.ones(2, 16))


def test_checkpoint_keeps_the_loss_scale_as_it_is_beside_every_stage(tmp_path: Path) -> None:
    """0.1 + 0.2 has no short decimal form; read back it must be the same number."""
    agreed = Agreed(updates_applied=12, loss_scale=0.1 + 0.2, clean_steps=34)
    write_shards(tmp_path, load_tiny(stage=(0, 1), pp=2), optimizer_state=moments, agreed=agreed)
    for stage in (0, 1):
        with safe_open(tmp_path / f"optimizer-00{stage}.safetensors", framework="pt") as file:
            kept = json.loads(file.metadata()["agreed"])
        assert kept == {"updates_applied": 12, "loss_scale": 0.1 + 0.2, "clean_steps": 34}


def test_checkpoint_of_the_same_state_has_the_same_bytes(tmp_path: Path) -> None:
    """Several entries of metadata would be in one of several orders, by chance."""
    agreed = Agreed(updates_applied=12, loss_scale=2.0, clean_steps=34)
    digests = {
        tuple(shard.sha256 for shard in write_shards(tmp_path, load_tiny(), optimizer_state=moments, agreed=agreed))
        for _ in range(16)
    }
    assert len(digests) == 1


def test_checkpoint_before_the_first_update_has_an_empty_optimizer_shard(tmp_path: Path) -> None:
    write_shards(tmp_path, load_tiny(), optimizer_state=lambda stage: {}, agreed=Agreed(updates_applied=0))
    assert load_file(tmp_path / "optimizer-000.safetensors") == {}


def test_checkpoint_that_cannot_be_written_leaves_no_part_of_a_file(tmp_path: Path) -> None:
    (tmp_path / "stage-000.safetensors").mkdir()
    with pytest.raises(OSError):
        write_shards(tmp_path, load_tiny(), optimizer_state=moments, agreed=AGREED)
    assert [path.name for path in tmp_path.iterdir()] == ["stage-000.safetensors"]


def test_config_json_names_labels_and_class_but_no_place() -> None:
    values = json.loads(config_json(load_tiny(stage=0, pp=2)))
    assert values["id2label"] == {"0": "no", "1": "yes"}
    assert values["label2id"] == {"no": 0, "yes": 1}
    assert values["architectures"] == ["BertForSequenceClassification"]
    assert values["model_type"] == "bert"
    assert "_name_or_path" not in values
