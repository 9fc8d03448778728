"""Drawn timelines against figures."""

from pathlib import Path

import pytest

from coordinator.schedule.custom import make_custom_plan
from coordinator.schedule.draw import draw
from coordinator.schedule.placement import looping
from coordinator.schedule.plan import make_forward_plan, make_plan
from coordinator.schedule.simulate import Costs, simulate

GOLDEN = Path(__file__).parent.parent / "golden"


@pytest.mark.parametrize(
    ("schedule", "backward", "figure"),
    [
        ("naive", 1, "naive_pp3_m4.txt"),
        ("gpipe", 1, "gpipe_pp3_m4.txt"),
        ("1f1b", 1, "1f1b_pp3_m4.txt"),
        ("1f1b", 2, "1f1b_pp3_m4_backward2.txt"),
    ],
)
def test_draw_of_three_stages_and_four_microbatches_is_the_figure(schedule: str, backward: float, figure: str) -> None:
    plan = make_plan(schedule, num_workers=3, num_microbatches=4)
    assert (
        draw(simulate(plan, Costs(input_gradient=backward / 2, weight_gradient=backward / 2)))
        == (GOLDEN / figure).read_text()
    )


def test_draw_of_a_half_unit_latency_gives_each_action_two_columns() -> None:
    timeline = simulate(
        make_plan("gpipe", num_workers=2, num_microbatches=2), Costs(input_gradient=0.5, weight_gradient=0.5, comm=0.5)
    )
    assert draw(timeline) == ("stage 0 | F0- F1- . . . . . . B0- B1-\nstage 1 | . . . F0- F1- B0- B1- . . .\n")


def test_draw_of_times_without_a_common_column_keeps_every_action() -> None:
    timeline = simulate(
        make_plan("1f1b", num_workers=3, num_microbatches=11), Costs(input_gradient=1, weight_gradient=0.37, comm=0.113)
    )
    for row, spans in zip(draw(timeline).splitlines(), timeline.workers, strict=True):
        drawn = [cell for cell in row.split("|")[1].replace("-", " ").split() if cell != "."]
        assert drawn == [f"{span.action.op}{span.action.microbatch}" for span in spans]


def test_draw_of_two_chunks_heads_by_worker_and_names_the_stage() -> None:
    timeline = simulate(make_forward_plan(looping(2, 2), num_microbatches=2))
    assert draw(timeline) == ("worker 0 | 0F0 0F1 2F0 2F1 .\nworker 1 | .   1F0 1F1 3F0 3F1\n")


@pytest.mark.parametrize(
    ("text", "costs", "figure"),
    [
        (
            "0F0,3F0,3B0,0B0\n1F0,2F0,2B0,1B0",
            Costs(),
            "worker 0 | 0F0 .   .   3F0 3B0---- .   .   .   .   0B0----\n"
            "worker 1 | .   1F0 2F0 .   .   .   2B0---- 1B0---- .   .\n",
        ),
        (
            "1F0,1F1,1I0,1I1,1W0,1W1\n0F0,0F1,0I0,0W0,0I1,0W1",
            Costs(),
            "worker 0 | .   1F0 1F1 1I0 1I1 1W0 1W1 .\nworker 1 | 0F0 0F1 .   .   0B0---- 0B1----\n",
        ),
        (
            "0F0,0F1,0I0,0I1,0W0,0W1",
            Costs(forward=1, input_gradient=0.5, weight_gradient=0.5),
            "stage 0 | F0--- F1--- I0 I1 W0 W1\n",
        ),
        (
            "0F0,1F0,1B0,0B0",
            Costs(forward=2, input_gradient=1, weight_gradient=0.5),
            "worker 0 | 0F0---- 1F0---- 1B0-- 0B0--\n",  # 4 to 3, two characters a column
        ),
    ],
    ids=["v", "stages in another order", "halves", "thirds"],
)
def test_draw_of_a_custom_plan_is_the_figure(text: str, costs: Costs, figure: str) -> None:
    plan = make_custom_plan(text, num_workers=None, num_chunks=None, num_microbatches=None)
    assert draw(simulate(plan, costs)) == figure
