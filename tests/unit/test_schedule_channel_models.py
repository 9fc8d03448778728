"""Verdicts of weaker channels against the table of the reference simulator, P=4 and M=8."""

import pytest

from coordinator.schedule.actions import Action, Op, parse
from coordinator.schedule.channel_models import ChannelModel, Verdict, report
from coordinator.schedule.placement import looping
from coordinator.schedule.plan import make_plan

COLUMNS = (
    ChannelModel.BLOCKING,
    ChannelModel.BATCHED,
    ChannelModel.PAIR,
    ChannelModel.ORDERED_PAIR,
    ChannelModel.ORDERED_PAIR_AND_KIND,
)
OK, DEADLOCK, MISMATCH = Verdict.OK, Verdict.DEADLOCK, Verdict.MISMATCH


@pytest.mark.parametrize(
    ("schedule", "num_chunks", "warmup", "verdicts"),
    [
        ("naive", 1, None, (OK, OK, OK, OK, OK)),
        ("gpipe", 1, None, (OK, OK, OK, OK, OK)),
        ("1f1b", 1, None, (DEADLOCK, OK, DEADLOCK, OK, OK)),
        ("zbh1", 1, None, (DEADLOCK, OK, DEADLOCK, OK, OK)),
        ("1f1b", 1, "eager", (DEADLOCK, OK, DEADLOCK, OK, OK)),
        ("zbh2", 1, None, (DEADLOCK, DEADLOCK, DEADLOCK, OK, OK)),
        ("interleaved", 2, None, (DEADLOCK, DEADLOCK, DEADLOCK, OK, OK)),
        ("looped_bfs", 2, None, (DEADLOCK, DEADLOCK, OK, OK, OK)),
        ("zbv", 2, None, (DEADLOCK, MISMATCH, DEADLOCK, MISMATCH, OK)),
        ("dualpipev", 2, None, (DEADLOCK, MISMATCH, DEADLOCK, MISMATCH, OK)),
    ],
)
def test_report_of_a_schedule_is_the_tables_row(
    schedule: str, num_chunks: int, warmup: str | None, verdicts: tuple[Verdict, ...]
) -> None:
    plan = make_plan(schedule, num_workers=4, num_chunks=num_chunks, num_microbatches=8, warmup=warmup)
    found = report(plan.orders, plan.placement)
    assert tuple(found[model] for model in COLUMNS) == verdicts


def test_report_of_interleaved_on_two_workers_needs_directions_apart() -> None:
    plan = make_plan("interleaved", num_workers=2, num_chunks=2, num_microbatches=8)
    found = report(plan.orders, plan.placement)
    assert found[ChannelModel.PAIR_AND_KIND] is DEADLOCK
    assert found[ChannelModel.ORDERED_PAIR_AND_KIND] is OK


def test_report_of_one_worker_is_ok_on_every_model() -> None:
    plan = make_plan("interleaved", num_workers=1, num_chunks=2, num_microbatches=2)
    assert report(plan.orders, plan.placement) == dict.fromkeys(ChannelModel, OK)


@pytest.mark.parametrize(
    ("orders", "verdicts"),
    [
        # forwards in another order at the receiver: the first message is already the wrong one
        (["0F0 0F1 0B0 0B1", "1F1 1F0 1B0 1B1"], (MISMATCH,) * 6),
        # worker 0 wants a gradient before it has sent what worker 1 computes first
        (["0F0 0B0 0F1 0B1", "1F0 1F1 1B0 1B1"], (DEADLOCK,) * 6),
        # both send first: no matter where a send is waited for, but not on a channel for both directions
        (["0F0 0F1 0B0 0B1", "1F0 1B0 1F1 1B1"], (DEADLOCK, OK, DEADLOCK, OK, OK, OK)),
    ],
    ids=["swapped", "circle", "crossing"],
)
def test_report_of_two_workers_is_what_a_hand_run_gives(orders: list[str], verdicts: tuple[Verdict, ...]) -> None:
    lists = [[a for a in map(parse, order.split()) if isinstance(a, Action)] for order in orders]
    assert tuple(report(lists, looping(2)).values()) == verdicts


def test_report_of_a_message_that_nobody_receives_is_a_deadlock() -> None:
    orders = [[Action(0, Op.FORWARD, 0), Action(0, Op.FORWARD, 1)], [Action(1, Op.FORWARD, 0)]]
    assert report(orders, looping(2)) == dict.fromkeys(ChannelModel, DEADLOCK)
