"""From a plan to the messages that its workers obey."""

from collections.abc import Sequence

from takt.v1 import commands_pb2, data_pb2

from coordinator.events import Item, ItemKind
from coordinator.planning import JobPlan
from coordinator.schedule.actions import Action, Instruction, Op
from coordinator.schedule.channels import peer_of
from coordinator.schedule.plan import Plan

_OPS = {
    Op.FORWARD: commands_pb2.OP_FORWARD,
    Op.BACKWARD: commands_pb2.OP_BACKWARD,
    Op.INPUT_GRADIENT: commands_pb2.OP_INPUT_GRADIENT,
    Op.WEIGHT_GRADIENT: commands_pb2.OP_WEIGHT_GRADIENT,
    Op.SEND_ACTIVATION: commands_pb2.OP_SEND_ACTIVATION,
    Op.RECV_ACTIVATION: commands_pb2.OP_RECV_ACTIVATION,
    Op.SEND_GRADIENT: commands_pb2.OP_SEND_GRADIENT,
    Op.RECV_GRADIENT: commands_pb2.OP_RECV_GRADIENT,
    Op.REDUCE: commands_pb2.OP_REDUCE,
    Op.STEP: commands_pb2.OP_STEP,
}

TRAIN_SPLIT = "train"


class Dispatch:
    """Makes the messages of one attempt; each worker's command list is encoded once per plan and reused."""

    def __init__(self, plan: JobPlan, *, job: str, attempt: int) -> None:
        self._job = job
        self._attempt = attempt
        self._topology = plan.topology
        self._num_microbatches = {
            ItemKind.TRAIN: plan.train.num_step_microbatches,
            ItemKind.EVALUATE: plan.evaluate.num_step_microbatches,
        }
        workers = range(plan.topology.num_workers)
        self._train = [self._encoded(plan.train, worker) for worker in workers]
        self._evaluate = [self._encoded(plan.evaluate, worker) for worker in workers]

    def messages(
        self, item: Item, description: data_pb2.StepDescription | None
    ) -> list[tuple[int, commands_pb2.StepCommands]]:
        """Return what each worker that an item concerns is sent; sequence numbers are left to its feed.

        Args:
            item: what to do.
            description: rows and widths, for a training or evaluation step.
        """
        workers = range(self._topology.num_workers)
        match item.kind:
            case ItemKind.TRAIN | ItemKind.EVALUATE:
                if description is None or description.step != item.step:
                    raise ValueError(f"{item} needs the description of its own step, not {description}")
                return [(worker, self._step(item, description, worker)) for worker in workers]
            case ItemKind.SAVE:
                savers = [worker for worker in workers if self._topology.coordinates(worker).dp_rank == 0]
                return [(worker, self._single(item, commands_pb2.OP_SAVE)) for worker in savers]
            case ItemKind.STOP:
                return [(worker, self._single(item, commands_pb2.OP_STOP)) for worker in workers]

    def _step(self, item: Item, description: data_pb2.StepDescription, worker: int) -> commands_pb2.StepCommands:
        trains = item.kind is ItemKind.TRAIN
        message = commands_pb2.StepCommands()
        message.CopyFrom((self._train if trains else self._evaluate)[worker])
        dp_rank, planned = self._topology.coordinates(worker).dp_rank, self._num_microbatches[item.kind]
        shapes = description.replicas[dp_rank].microbatches if dp_rank < len(description.replicas) else ()
        if len(shapes) != planned:
            raise ValueError(f"{item} was described with {len(shapes)} microbatches, but the plan has {planned}")
        message.step, message.after = item.step, item.after
        message.split = TRAIN_SPLIT if trains else item.split
        message.denominator = description.denominator
        for shape in shapes:
            message.microbatches.add(rows=shape.rows, width=shape.width)
        return message

    def _single(self, item: Item, op: commands_pb2.Op) -> commands_pb2.StepCommands:
        message = self._message(data_pb2.PHASE_TRAIN)
        message.split, message.step = TRAIN_SPLIT, item.after
        message.commands.add(op=op)
        return message

    def _encoded(self, plan: Plan, worker: int) -> commands_pb2.StepCommands:
        place = self._topology.coordinates(worker)
        first_of_replica = self._topology.worker_of(dp_rank=place.dp_rank, pp_rank=0)
        message = self._message(data_pb2.PHASE_EVALUATE if plan.forward_only else data_pb2.PHASE_TRAIN)
        instructions: Sequence[Instruction] = plan.workers[place.pp_rank]
        for instruction in instructions:
            command = message.commands.add(op=_OPS[instruction.op])
            if isinstance(instruction, Action):
                command.stage, command.microbatch = instruction.stage, instruction.microbatch
                if instruction.op.is_transfer:
                    command.peer = first_of_replica + peer_of(instruction, plan.placement)
        message.ends_step = True
        return message

    def _message(self, phase: data_pb2.Phase) -> commands_pb2.StepCommands:
        return commands_pb2.StepCommands(job=self._job, attempt=self._attempt, phase=phase)
