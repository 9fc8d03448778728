"""What the stages of a job need of their devices, before it is decided which layers they have."""

from functools import cache
from itertools import chain

from coordinator.byte_size import bytes_of
from coordinator.device_memory import DeviceMemory
from coordinator.facts import ModelFacts
from coordinator.flight import peak_flights
from coordinator.memory import StepMemory
from coordinator.partition import StageSlice
from coordinator.schedule.actions import Action
from coordinator.schedule.plan import Plan
from coordinator.spec import JobSpec


def memory_of_stages(spec: JobSpec, model: ModelFacts, plan: Plan) -> DeviceMemory | None:
    """Return the bytes that ``limits.device_memory_bytes`` leaves, and those that each stage needs with any layers.

    A worker with one stage needs by prediction just what its stage does; one with several never more than they do
    together, whose peaks need not come at once.

    Args:
        spec: of the job.
        model: its facts.
        plan: of a training step.

    Returns:
        None where there is no limit, or nothing is known of the model's parts.
    """
    limit = spec.limits.device_memory_bytes
    if limit is None or model.parts is None:
        return None
    step = StepMemory(spec, model.parts, hidden_size=model.hidden_size, plan=plan)
    placement = plan.placement
    own: list[list[Action]] = [[] for _ in range(placement.num_stages)]
    for instruction in chain.from_iterable(plan.workers):
        if isinstance(instruction, Action):
            own[instruction.stage].append(instruction)
    beside = [0] * placement.num_stages
    for worker in range(placement.num_workers):
        beside[placement.stages_of(worker)[0]] = step.borders(worker)

    @cache
    def activation_bytes(stage: int, num_layers: int) -> int:
        # Any layers: all are alike, and frozen ones, which differ, count on stage 0 only.
        piece = StageSlice(stage=stage, first_layer=0, num_layers=num_layers)
        return peak_flights(own[stage], {stage: step.flights(piece)})

    @cache
    def stage_bytes(stage: int, first: int, end: int) -> int:
        piece = StageSlice(stage=stage, first_layer=first, num_layers=end - first)
        weights = step.weights([piece], num_layers=model.num_layers)
        held = weights.parameters + weights.gradients + weights.optimizer
        return held + activation_bytes(stage, end - first) + beside[stage]

    return DeviceMemory(limit_bytes=bytes_of(limit), stage_bytes=stage_bytes, worker_by_stage=placement.worker_by_stage)
