"""Plans that the installed torch.distributed.pipelining writes: they load as they are, and are the plans made here."""

import inspect
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from torch.distributed.pipelining import schedules

from coordinator.schedule.actions import Action
from coordinator.schedule.custom import make_custom_plan
from coordinator.schedule.plan import Plan, make_plan
from coordinator.schedule.simulate import simulate

TWO_CHUNKS = (
    "ScheduleInterleaved1F1B",
    "ScheduleLoopedBFS",
    "ScheduleInterleavedZeroBubble",
    "ScheduleZBVZeroBubble",
    "ScheduleDualPipeV",
)
DEFERS = "defer_pp_recv" in inspect.signature(schedules.ScheduleLoopedBFS).parameters  # not in every torch
SIZES = [(2, 4), (2, 6), (4, 8), (4, 12)]
Order = list[Any]


def schedule_of(name: str, *, num_workers: int, num_chunks: int, num_microbatches: int, **options: bool) -> Any:
    """Return torch's schedule; its stages are never run, so they need no process group."""
    stage = SimpleNamespace(
        num_stages=num_workers * num_chunks, group_size=num_workers, group_rank=0, submod=torch.nn.Identity()
    )
    make = getattr(schedules, name)
    return make([stage] * num_chunks, num_microbatches, loss_fn=torch.sum, **options)


def gpipe_of(*, num_workers: int, num_microbatches: int) -> Any:
    """Return torch's runtime of its GPipe orders, which it only writes when they are given to that runtime."""
    gpipe = object.__new__(schedules.ScheduleGPipe)
    gpipe._num_stages, gpipe._n_microbatches = num_workers, num_microbatches
    runtime = schedule_of(
        "_PipelineScheduleRuntime", num_workers=num_workers, num_chunks=1, num_microbatches=num_microbatches
    )
    orders = gpipe._get_pipeline_order()
    runtime.pipeline_order = {rank: [a for a in order if a.is_compute_op] for rank, order in orders.items()}
    runtime._prepare_schedule_with_comms(runtime.pipeline_order)
    return runtime


def load(schedule: Any, kind: str, folder: Path) -> Plan:
    """Return the plan of the file that torch writes, sizes as the file has them."""
    file = folder / "plan.csv"
    schedule._dump_csv(file, format=kind)
    return make_custom_plan(file.read_text(), num_workers=None, num_chunks=None, num_microbatches=None)


def halves(texts: list[str]) -> list[str]:
    """Return compute actions with every whole backward as its two halves."""
    return [half for text in texts for half in ([text.replace("B", x) for x in "IW"] if "B" in text else [text])]


def compute_of(order: Order) -> list[str]:
    """Return the compute actions of one rank of torch, overlapped ones in their order."""
    actions = [action for action in order if action is not None and action.is_compute_op]
    return halves([str(one) for action in actions for one in (action.sub_actions or (action,))])


def transfers_of(order: Order) -> list[str]:
    return [str(action) for action in order if "SEND" in str(action) or "RECV" in str(action)]


@pytest.mark.parametrize("options", [{}, {"defer_pp_recv": True}] if DEFERS else [{}], ids=str)
@pytest.mark.parametrize(("num_workers", "num_microbatches"), SIZES)
@pytest.mark.parametrize("name", TWO_CHUNKS)
def test_torch_plan_of_two_chunks_loads_with_its_orders_and_its_transfers(
    name: str, num_workers: int, num_microbatches: int, options: dict[str, bool], tmp_path: Path
) -> None:
    size = {"num_workers": num_workers, "num_chunks": 2, "num_microbatches": num_microbatches}
    schedule = schedule_of(name, **size, **options)
    for kind in ("compute_only", "compute_comms"):
        plan = load(schedule, kind, tmp_path)
        assert (plan.placement.num_workers, plan.placement.num_chunks) == (num_workers, 2)
        assert plan.num_microbatches == num_microbatches
        for rank, order in schedule.pipeline_order.items():
            assert halves([str(action) for action in plan.orders[rank]]) == compute_of(order)
    for rank, order in schedule.pipeline_order_with_comms.items():
        transfers = [str(i) for i in plan.workers[rank] if isinstance(i, Action) and i.op.is_transfer]
        assert transfers == transfers_of(order)


@pytest.mark.parametrize(("num_workers", "num_microbatches"), SIZES)
def test_torch_plan_of_gpipe_loads_with_and_without_transfers(
    num_workers: int, num_microbatches: int, tmp_path: Path
) -> None:
    size = {"num_workers": num_workers, "num_microbatches": num_microbatches}
    runtime, gpipe = gpipe_of(**size), make_plan("gpipe", **size)
    assert load(runtime, "compute_only", tmp_path).workers == gpipe.workers
    assert load(runtime, "compute_comms", tmp_path).orders == gpipe.orders


@pytest.mark.parametrize(("num_workers", "num_microbatches"), SIZES)
@pytest.mark.parametrize(
    ("name", "num_chunks", "ours", "warmup"),
    [
        ("ScheduleInterleaved1F1B", 1, "1f1b", "eager"),
        ("ScheduleInterleavedZeroBubble", 1, "zbh1", None),
        ("ScheduleInterleaved1F1B", 2, "interleaved", None),
        ("ScheduleZBVZeroBubble", 2, "zbv", None),
        ("ScheduleDualPipeV", 2, "dualpipev", None),
    ],
)
def test_torch_plan_is_the_plan_that_is_made_here(
    name: str,
    num_chunks: int,
    ours: str,
    warmup: str | None,
    num_workers: int,
    num_microbatches: int,
    tmp_path: Path,
) -> None:
    size = {"num_workers": num_workers, "num_chunks": num_chunks, "num_microbatches": num_microbatches}
    plan = load(schedule_of(name, **size), "compute_only", tmp_path)
    assert plan.workers == make_plan(ours, **size, warmup=warmup).workers
    assert not plan.notices


def test_torch_plan_of_breadth_first_runs_backwards_last_microbatch_first_and_says_so(tmp_path: Path) -> None:
    schedule = schedule_of("ScheduleLoopedBFS", num_workers=2, num_chunks=2, num_microbatches=4)
    notices = load(schedule, "compute_only", tmp_path).notices
    assert len(notices) == 4
    assert all("out of order" in notice for notice in notices)


@pytest.mark.parametrize(
    ("name", "compute_only", "compute_comms"),
    [
        ("ScheduleInterleaved1F1B", 28.5, 28.5),
        ("ScheduleLoopedBFS", 28.5, 28.5),
        ("ScheduleZBVZeroBubble", 25.5, 25.5),
        ("ScheduleDualPipeV", 25.5, 27),  # with transfers an overlapped pair sends when both of it are done
    ],
)
def test_torch_plan_takes_the_tables_time(name: str, compute_only: float, compute_comms: float, tmp_path: Path) -> None:
    schedule = schedule_of(name, num_workers=4, num_chunks=2, num_microbatches=8)
    assert simulate(load(schedule, "compute_only", tmp_path)).makespan == compute_only
    assert simulate(load(schedule, "compute_comms", tmp_path)).makespan == compute_comms
