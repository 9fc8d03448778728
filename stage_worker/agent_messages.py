"""Between the agent's own words and the wire's."""

import json
from collections.abc import Sequence
from pathlib import Path

from google.protobuf import json_format
from takt.rpc.paths import is_under
from takt.v1 import workers_pb2 as pb

from stage_worker.agent_events import Assigned, EndCause, Refused, SayEnded, Work

_CAUSES = {
    EndCause.EXITED: pb.END_CAUSE_EXITED,
    EndCause.SIGNALLED: pb.END_CAUSE_SIGNALLED,
    EndCause.RELEASED: pb.END_CAUSE_RELEASED,
    EndCause.STUCK: pb.END_CAUSE_STUCK,
    EndCause.SILENT: pb.END_CAUSE_SILENT,
    EndCause.NOT_STARTED: pb.END_CAUSE_NOT_STARTED,
}


def decode_assignment(assignment: pb.Assignment, *, allow_roots: Sequence[Path]) -> Assigned | Refused:
    """Return the work, or why this slot does not do it."""
    if assignment.job in ("", "..") or Path(assignment.job).name != assignment.job:
        reason = f"job {assignment.job!r} is no name, so nothing can be kept in a folder of that name"
        return Refused(assignment.job, assignment.attempt, reason)
    try:
        spec = json.loads(assignment.spec_json)
        pp = int(spec["parallel"]["pp"])
        limits = spec["limits"]
        work = Work(
            job=assignment.job,
            attempt=assignment.attempt,
            worker=assignment.worker,
            dp_rank=assignment.worker // pp,
            stages=tuple(part.stage for part in assignment.stages),
            lease_seconds=float(limits["lease_seconds"]),
            step_timeout_seconds=float(limits["step_timeout_seconds"]),
            assignment=json_format.MessageToJson(assignment, preserving_proto_field_name=True, indent=None),
        )
    except (KeyError, TypeError, ValueError) as error:
        reason = f"the assignment's spec_json cannot be read: {error!r}"
        return Refused(assignment.job, assignment.attempt, reason)
    refusal = refused_model(assignment.spec_json, allow_roots=allow_roots)
    return Assigned(work) if refusal is None else Refused(assignment.job, assignment.attempt, refusal)


def refused_model(spec_json: str, *, allow_roots: Sequence[Path]) -> str | None:
    """Return why the weights that a resolved spec names must not be read here; None where they may."""
    try:
        spec = json.loads(spec_json)
        named = {"model.pretrained": spec["model"].get("pretrained"), "checkpoint.from": spec["checkpoint"].get("from")}
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        return f"the resolved spec cannot be read: {error!r}"
    for key, place in named.items():
        # What is no path of `checkpoint.from` is a job's id, whose checkpoint is in the state folder.
        is_folder = place is not None and (key == "model.pretrained" or place.startswith("/"))
        if is_folder and not is_under(place, allow_roots):
            roots = ", ".join(str(root) for root in allow_roots) or "none"
            return f"{key} is {place}, which is under no --allow-root of this agent ({roots})"
    return None


def encode_work(work: Work, *, pid: int) -> pb.AgentWork:
    """Return what an executor works on; ``pid`` is 0 where it was not started yet."""
    return pb.AgentWork(job=work.job, attempt=work.attempt, worker=work.worker, pid=pid, log=work.log)


def encode_ended(said: SayEnded, *, log_tail: str) -> pb.ExecutorEnded:
    """Return the message that an executor is gone."""
    return pb.ExecutorEnded(
        job=said.job,
        attempt=said.attempt,
        cause=_CAUSES[said.cause],
        exit_code=said.exit_code,
        signal=said.signal,
        message=said.message,
        log_tail=log_tail,
        stage=said.stage,
    )
