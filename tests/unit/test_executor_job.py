"""What an executor reads from its assignment, and tells of an error."""

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from takt.v1 import workers_pb2 as pb

from stage_worker.comm_place import Place
from stage_worker.engine.commands import Command, Op, Phase, StepSetting
from stage_worker.engine.failure import CommandFailed
from stage_worker.engine.learning_rate import LearningRate, LearningRateSchedule
from stage_worker.engine.optimizer import OptimizerName
from stage_worker.engine.transport import PeerLostError
from stage_worker.executor_job import job_of
from stage_worker.executor_run import failure_of
from stage_worker.models.slices import StageSlice

SPEC: dict[str, Any] = {
    "model": {"pretrained": "/models/bert", "config": None, "attention": "eager"},
    "parallel": {"pp": 3, "dp": 2},
    "train": {
        "optimizer": "sgd",
        "learning_rate": 0.5,
        "lr_schedule": "linear",
        "warmup_fraction": 0.25,
        "weight_decay": 0.125,
        "max_grad_norm": 1.0,
        "precision": "fp32",
        "boundary_dtype": "compute",
        "loss_scale": {
            **{"initial": 1024.0, "growth_factor": 4.0, "backoff_factor": 0.25, "growth_interval": 10},
            **{"min": 2.0, "max": 4096.0},
        },
        "recompute": "none",
        "objective": "classification",
        "frozen_layers": None,
        "seed": 7,
    },
    "limits": {"step_timeout_seconds": 30.0},
}


def assignment(**changes: Any) -> pb.Assignment:
    return pb.Assignment(
        job="a",
        attempt=2,
        worker=5,
        num_workers=6,
        spec_json=json.dumps(SPEC | changes),
        stages=[pb.StageSlice(stage=2, first_layer=8, num_layers=4)],
        num_stages=3,
        layers_by_stage=[4, 4, 4],
        pp_rank_by_stage=[0, 1, 2],
        total_steps=40,
        data_service="data:7710",
        num_labels=2,
        labels=["no", "yes"],
        pad_token_id=3,
        vocabulary_size=99,
        split_digests=[pb.SplitDigest(split="train", digest="t"), pb.SplitDigest(split="test", digest="v")],
    )


def test_job_of_an_assignment_reads_place_stages_and_training() -> None:
    job = job_of(assignment())
    assert (job.job, job.attempt, job.place) == ("a", 2, Place(worker=5, pp=3, dp=2))
    assert (job.place.dp_rank, job.place.pp_rank) == (1, 2)
    assert job.slices == (StageSlice(stage=2, first_layer=8, num_layers=4, is_first=False, is_last=True),)
    assert (job.folder, job.attention, job.seed, job.data_service) == (Path("/models/bert"), "eager", 7, "data:7710")
    assert job.digests == {"train": "t", "test": "v"}
    assert job.optimizer.name is OptimizerName.SGD
    assert job.optimizer.learning_rate == LearningRate(
        base=0.5, schedule=LearningRateSchedule.LINEAR, warmup_fraction=0.25, total_steps=40
    )
    assert (job.optimizer.weight_decay, job.optimizer.max_grad_norm) == (0.125, 1.0)
    assert (job.needs.labels, job.needs.pad_token_id, job.needs.vocabulary_size) == (("no", "yes"), 3, 99)


def test_job_of_a_v_holds_the_first_and_the_last_stage_and_knows_who_has_the_others() -> None:
    message = assignment()
    message.worker, message.num_stages, message.pp_rank_by_stage[:] = 3, 6, [0, 1, 2, 2, 1, 0]
    del message.stages[:]
    message.stages.add(stage=0, first_layer=0, num_layers=2)
    message.stages.add(stage=5, first_layer=10, num_layers=2, splits_backward=True)
    job = job_of(message)
    assert (job.place.dp_rank, job.place.pp_rank) == (1, 0)
    assert job.pp_rank_by_stage == (0, 1, 2, 2, 1, 0)
    assert [(part.stage, part.is_first, part.is_last, part.splits_backward) for part in job.slices] == [
        (0, True, False, False),
        (5, False, True, True),
    ]


def test_job_of_a_model_from_scratch_has_its_config_and_no_folder() -> None:
    job = job_of(assignment(model={"pretrained": None, "config": {"model_type": "bert"}, "attention": "sdpa"}))
    assert job.folder is None
    assert job.config == {"model_type": "bert"}


def test_job_of_a_spec_that_is_not_resolved_is_refused() -> None:
    with pytest.raises(KeyError):
        job_of(assignment(train={}))


SETTING = StepSetting(Phase.TRAIN, "train", 3, 8, ())


def test_failure_of_a_command_tells_the_cause_and_its_place() -> None:
    failed = CommandFailed(ValueError("boom"), command=Command(Op.FORWARD, stage=1, microbatch=0), setting=SETTING)
    told = failure_of(failed)
    assert (told.type, told.message, told.step, told.stage) == ("ValueError", "boom", 3, 1)
    assert told.HasField("microbatch")
    assert not told.peer_lost


def test_failure_in_an_evaluation_is_in_no_training_step() -> None:
    evaluation = replace(SETTING, phase=Phase.EVALUATE)
    failed = CommandFailed(ValueError("boom"), command=Command(Op.FORWARD, stage=1, microbatch=0), setting=evaluation)
    assert failure_of(failed).step == 0
    assert str(failed) == "evaluation step 3, forward, stage 1, microbatch 0: ValueError: boom"


def test_failure_of_a_lost_peer_points_elsewhere_and_to_no_stage() -> None:
    told = failure_of(CommandFailed(PeerLostError("worker 2 is gone"), command=Command(Op.REDUCE), setting=SETTING))
    assert told.peer_lost
    assert not told.HasField("stage")
    assert not told.HasField("microbatch")


def test_failure_before_the_first_step_has_no_place() -> None:
    told = failure_of(OSError("disk is full"))
    assert (told.type, told.message, told.step) == ("OSError", "disk is full", 0)
    assert not told.HasField("stage")
