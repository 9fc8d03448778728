"""From a plan to what each agent is told to start."""

from takt.v1 import workers_pb2 as pb

from coordinator.origin import folder_of
from coordinator.planning import JobPlan
from coordinator.schedule.actions import Action, Op
from coordinator.spec import to_json
from coordinator.start import SavedState


def assignment_of(
    plan: JobPlan, *, job: str, attempt: int, worker: int, saved: SavedState | None, data_service: str
) -> pb.Assignment:
    """Return one worker's place in an attempt, with all that it needs to load its layers."""
    splitting = {
        instruction.stage
        for instruction in plan.train.workers[plan.topology.coordinates(worker).pp_rank]
        if isinstance(instruction, Action) and instruction.op is Op.INPUT_GRADIENT
    }
    slices = [
        pb.StageSlice(
            stage=part.stage,
            first_layer=part.first_layer,
            num_layers=part.num_layers,
            splits_backward=part.stage in splitting,
        )
        for part in plan.slices_of(worker)
    ]
    return pb.Assignment(
        job=job,
        attempt=attempt,
        worker=worker,
        num_workers=plan.topology.num_workers,
        spec_json=to_json(plan.spec),
        stages=slices,
        num_stages=plan.train.placement.num_stages,
        total_steps=plan.total_steps,
        data_service=data_service,
        num_labels=plan.data.num_labels,
        labels=plan.data.labels,
        pad_token_id=plan.data.pad_token_id,
        vocabulary_size=plan.data.vocabulary_size,
        pp_rank_by_stage=plan.train.placement.worker_by_stage,
        layers_by_stage=[part.num_layers for part in plan.partition],
        split_digests=[pb.SplitDigest(split=split.name, digest=split.digest) for split in plan.data.splits],
        checkpoint=None if saved is None else _checkpoint(saved),
        weights=folder_of(plan.spec) or "",
    )


def _checkpoint(saved: SavedState) -> pb.Checkpoint:
    agreed = saved.agreed
    return pb.Checkpoint(
        step=saved.step,
        parameters=saved.parameters,
        optimizer=saved.optimizer,
        agreed=pb.AgreedState(
            updates_applied=agreed.updates_applied, loss_scale=agreed.loss_scale, clean_steps=agreed.clean_steps
        ),
    )
