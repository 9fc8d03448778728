"""How the workers of an attempt find each other and get a transport."""

import enum
from collections.abc import Sequence
from datetime import timedelta

import torch

from stage_worker.comm_place import Place
from stage_worker.comm_store import PrefixStore, Store
from stage_worker.engine.transport import Transport


class TransportName(enum.StrEnum):
    """What moves tensors; the value is its name in flags."""

    AUTO = "auto"
    GLOO = "gloo"
    NCCL = "nccl"


def join_transport(
    name: TransportName,
    store: Store,
    *,
    place: Place,
    pp_rank_by_stage: Sequence[int],
    shared_pairs: Sequence[tuple[int, int]],
    job: str,
    attempt: int,
    host: str,
    device: torch.device,
    limit_seconds: float,
) -> Transport:
    """Meet all other workers and return the way to them; blocks until all are here.

    Args:
        name: auto is NCCL on CUDA devices, else Gloo.
        store: the attempt's.
        place: this worker's.
        pp_rank_by_stage: place in the pipeline of each stage's worker, stage 0 first.
        shared_pairs: places (from, to) in a pipeline between which sums of shared parameters go.
        job: with ``attempt``, keeps apart what other attempts left in a store.
        attempt: of the job.
        host: address of this machine that the others reach.
        device: where the tensors are.
        limit_seconds: of every wait; must exceed the longest step, since passing it ends the attempt.

    Raises:
        RendezvousError: not all came in time.
    """
    own_store = PrefixStore(f"{job}/{attempt}", store)
    limit = timedelta(seconds=limit_seconds)
    if name is TransportName.NCCL or (name is TransportName.AUTO and device.type == "cuda"):
        from stage_worker.comm_nccl import join_nccl  # noqa: PLC0415  only one of the two is needed

        return join_nccl(
            own_store,
            host=host,
            place=place,
            pp_rank_by_stage=pp_rank_by_stage,
            shared_pairs=shared_pairs,
            device=device,
            limit=limit,
        )
    from stage_worker.comm_gloo import join_gloo  # noqa: PLC0415

    return join_gloo(own_store, place=place, host=host, device=device, limit=limit)
