"""``python -m stage_worker facts``: what a job's model looks like, and whether it could be loaded.

Of a new model its config alone is read, without its modelling code; of a folder the headers of its files as well.
"""

import json
import re
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from google.protobuf import json_format
from takt.v1 import workers_pb2 as pb

from stage_worker.engine.precision import ComputeType
from stage_worker.models.config import (
    HIGHEST_UNNAMED_PAD,
    ModelConfigError,
    TaskNeeds,
    fit_to_task,
    new_config,
    pretrained_config,
)
from stage_worker.models.coverage import check_coverage
from stage_worker.models.families import FAMILIES, UnsupportedModelError
from stage_worker.models.objective import Objective
from stage_worker.models.skeleton import build_skeleton
from stage_worker.models.tensor_files import WeightsError
from stage_worker.models.variants import most_positions
from stage_worker.models.weights import WeightsFolder
from stage_worker.parts import model_parts

REFUSED_EXIT = 2
_DEFAULT_LABEL = re.compile(r"LABEL_\d+")


class SpecError(ValueError):
    """A spec that is none."""


def print_facts(spec: str) -> int:
    """Print the facts of the model of the resolved spec at a path (``-``: stdin); return the exit code.

    With a key ``needs`` in it, those of the data, the model's parts are among them.
    """
    try:
        section, train, objective, needs = _sections(spec)
        facts = model_facts(section, objective)
        if needs is not None:
            compute = ComputeType(train["precision"])
            facts.parts.CopyFrom(parts_of(section, needs, objective, compute=compute))
    except (SpecError, ModelConfigError, UnsupportedModelError, WeightsError) as error:
        print(f"error: {' '.join(str(error).split())}", file=sys.stderr)
        return REFUSED_EXIT
    print(json_format.MessageToJson(facts, preserving_proto_field_name=True, always_print_fields_with_no_presence=True))
    return 0


def needs_of(num_labels: int, vocabulary_size: int, pad_token_id: int) -> TaskNeeds:
    """Return what the data need of a model, as far as its sizes go; one output predicts a number."""
    labels = [str(label) for label in range(num_labels)] if num_labels > 1 else []
    return TaskNeeds(labels=labels, num_labels=num_labels, vocabulary_size=vocabulary_size, pad_token_id=pad_token_id)


def model_facts(section: Mapping[str, Any], objective: Objective = Objective.CLASSIFICATION) -> pb.ModelFacts:
    """Return the facts of the model section of a resolved spec, for what is to be learnt.

    Raises:
        ModelConfigError: there is no such folder, or no config that transformers takes.
        UnsupportedModelError: no family describes the model.
        WeightsError: the folder has no safetensors, or not those that the model of its config needs.
    """
    folder = section.get("pretrained")
    if folder is None:
        return _facts_of_new(section["config"], objective)
    return _facts_of_folder(Path(folder), objective)


def parts_of(
    section: Mapping[str, Any], needs: TaskNeeds, objective: Objective, *, compute: ComputeType
) -> pb.ModelParts:
    """Return the parts of the model of a section; takes seconds.

    Raises:
        ModelConfigError, UnsupportedModelError: as ``model_facts``.
    """
    folder = section.get("pretrained")
    if folder is None:
        config = new_config(section["config"], needs, objective)
    else:
        config = pretrained_config(Path(folder), objective)
    fit_to_task(config, needs, attention=section["attention"])
    return model_parts(config, objective, dtype=compute.dtype)


def _facts_of_folder(folder: Path, objective: Objective) -> pb.ModelFacts:
    if not folder.is_dir():
        raise ModelConfigError(f"model.pretrained: there is no folder {folder}; name a local Hugging Face model folder")
    config = pretrained_config(folder, objective)
    skeleton = build_skeleton(config, objective)
    try:
        with WeightsFolder(folder, base_prefix=skeleton.family.base_prefix) as weights:
            check_coverage(skeleton, range(len(skeleton.blocks)), weights)
            has_head = objective is Objective.CLASSIFICATION and weights.has(FAMILIES[config.model_type].head)
    except WeightsError as error:
        raise WeightsError(f"model.pretrained: {error}") from error
    return _facts(config, vocabulary_size=config.vocab_size, has_head=has_head, pads=[config.pad_token_id])


def _facts_of_new(values: Mapping[str, Any], objective: Objective) -> pb.ModelFacts:
    # The data decide the vocabulary where the config names none; any size does for the other facts.
    needs = TaskNeeds(labels=(), num_labels=2, pad_token_id=HIGHEST_UNNAMED_PAD, vocabulary_size=2**31 - 1)
    config = new_config(values, needs, objective)
    has_head = not values.keys().isdisjoint(("num_labels", "id2label"))
    return _facts(
        config,
        vocabulary_size=config.vocab_size if "vocab_size" in values else 0,
        has_head=has_head,
        pads=[config.pad_token_id] if "pad_token_id" in values else range(HIGHEST_UNNAMED_PAD + 1),
    )


def _facts(config: Any, *, vocabulary_size: int, has_head: bool, pads: Sequence[int]) -> pb.ModelFacts:
    labels = [str(config.id2label[index]) for index in sorted(config.id2label)]
    # Every config has labels; where they are the library's own and there is no head, nobody asked for them.
    if not has_head and all(_DEFAULT_LABEL.fullmatch(label) for label in labels):
        labels = []
    return pb.ModelFacts(
        model_type=config.model_type,
        num_layers=config.num_hidden_layers,
        hidden_size=config.hidden_size,
        max_positions=most_positions(config),
        vocabulary_size=vocabulary_size,
        has_head=has_head,
        token_types=config.type_vocab_size if FAMILIES[config.model_type].takes_token_types else 0,
        labels=labels,
        pad_token_ids=pads if FAMILIES[config.model_type].positions_follow_pad else (),
    )


def _sections(spec: str) -> tuple[Mapping[str, Any], Mapping[str, Any], Objective, TaskNeeds | None]:
    try:
        text = sys.stdin.read() if spec == "-" else Path(spec).read_text(encoding="utf-8")
        document = json.loads(text)
        section, train = document["model"], document["train"]
        objective = Objective(train["objective"])
        needs = needs_of(**document["needs"]) if "needs" in document else None
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise SpecError(f"the job spec {spec} cannot be read: {error!r}") from error
    if not isinstance(section, dict) or (section.get("pretrained") is None and section.get("config") is None):
        raise SpecError("the job spec names neither model.pretrained nor model.config")
    return section, train, objective, needs
