"""What an executor needs to know of its job, read once from the assignment."""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from takt.v1 import workers_pb2 as pb

from stage_worker.comm_place import Place
from stage_worker.engine.learning_rate import LearningRate, LearningRateSchedule
from stage_worker.engine.loss_scale import LossScaleSettings
from stage_worker.engine.optimizer import OptimizerName, OptimizerSettings
from stage_worker.engine.precision import ComputeType, Precision
from stage_worker.engine.recompute import Recompute
from stage_worker.models.config import TaskNeeds
from stage_worker.models.objective import Objective
from stage_worker.models.slices import StageSlice
from stage_worker.restore import SavedState


@dataclass(frozen=True, slots=True, kw_only=True)
class ExecutorJob:
    """One worker's place in one attempt of a job."""

    job: str
    attempt: int
    place: Place
    slices: tuple[StageSlice, ...]
    """Its stages, ascending."""
    layers_by_stage: tuple[int, ...]
    """Layers of every stage of the whole model."""
    pp_rank_by_stage: tuple[int, ...]
    """Place in the pipeline of each stage's worker, stage 0 first."""
    folder: Path | None
    """Pretrained model; None for one from scratch."""
    weights: Path | None
    """Hugging Face folder whose weights are taken in place of those of the model; None where there is none."""
    saved: SavedState | None
    """What the attempt goes on from; None where it begins with step 1."""
    config: Mapping[str, Any]
    """Values of a config from scratch."""
    attention: str
    needs: TaskNeeds
    objective: Objective
    optimizer: OptimizerSettings
    precision: Precision
    recompute: Mapping[int, Recompute]
    """By own stage."""
    frozen_layers: int | None
    seed: int
    data_service: str
    """host:port."""
    digests: Mapping[str, str]
    """Digest of the rows of each split that the job was checked with, by its name."""


def job_of(assignment: pb.Assignment) -> ExecutorJob:
    """Return what an assignment says.

    Raises:
        KeyError, TypeError, ValueError: its spec is not a resolved one.
    """
    spec = json.loads(assignment.spec_json)
    model, train = spec["model"], spec["train"]
    folder = model["pretrained"]
    last = assignment.num_stages - 1
    return ExecutorJob(
        job=assignment.job,
        attempt=assignment.attempt,
        place=Place(worker=assignment.worker, pp=spec["parallel"]["pp"], dp=spec["parallel"]["dp"]),
        slices=tuple(
            StageSlice(
                stage=part.stage,
                first_layer=part.first_layer,
                num_layers=part.num_layers,
                is_first=part.stage == 0,
                is_last=part.stage == last,
                splits_backward=part.splits_backward,
            )
            for part in assignment.stages
        ),
        layers_by_stage=tuple(assignment.layers_by_stage),
        pp_rank_by_stage=tuple(assignment.pp_rank_by_stage),
        folder=Path(folder) if folder is not None else None,
        weights=Path(assignment.weights) if assignment.weights else None,
        saved=SavedState.of(assignment.checkpoint) if assignment.HasField("checkpoint") else None,
        config=model["config"] or {},
        attention=model["attention"],
        needs=TaskNeeds(
            labels=tuple(assignment.labels),
            num_labels=assignment.num_labels,
            pad_token_id=assignment.pad_token_id,
            vocabulary_size=assignment.vocabulary_size,
        ),
        objective=Objective(train["objective"]),
        optimizer=OptimizerSettings(
            name=OptimizerName(train["optimizer"]),
            learning_rate=LearningRate(
                base=train["learning_rate"],
                schedule=LearningRateSchedule(train["lr_schedule"]),
                warmup_fraction=train["warmup_fraction"],
                total_steps=assignment.total_steps,
            ),
            weight_decay=train["weight_decay"],
            max_grad_norm=train["max_grad_norm"],
        ),
        precision=_precision(train),
        recompute={part.stage: recompute_of(train["recompute"], part.stage) for part in assignment.stages},
        frozen_layers=train["frozen_layers"],
        seed=train["seed"],
        data_service=assignment.data_service,
        digests={each.split: each.digest for each in assignment.split_digests},
    )


def _precision(train: Mapping[str, Any]) -> Precision:
    compute = ComputeType(train["precision"])
    return Precision(
        compute=compute,
        fp32_boundaries=train["boundary_dtype"] == "fp32",
        loss_scale=LossScaleSettings(**train["loss_scale"]) if compute is ComputeType.FP16 else None,
    )


def recompute_of(setting: str | int | Sequence[int], stage: int) -> Recompute:
    """Return what one stage does again, as ``train.recompute`` says it."""
    match setting:
        case "none":
            return Recompute()
        case "full":
            return Recompute(num_layers=None)
        case "except_last":
            return Recompute(num_layers=None, keeps_last=True)
        case int():
            return Recompute(num_layers=setting)
        case str():
            raise ValueError(f"train.recompute is {setting!r}")
        case _:
            return Recompute(num_layers=setting[stage])
