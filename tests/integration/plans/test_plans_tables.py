"""Every schedule against published numbers, closed forms, and figures."""

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from coordinator.schedule.actions import Action, Op
from coordinator.schedule.draw import draw
from coordinator.schedule.in_flight import peak_in_flight
from coordinator.schedule.interleaved import in_flight_interleaved, order_interleaved
from coordinator.schedule.lowering import STEP_END, lower
from coordinator.schedule.one_f_one_b import EAGER
from coordinator.schedule.placement import looping
from coordinator.schedule.plan import Plan, make_plan
from coordinator.schedule.simulate import Costs, Timeline, simulate

GOLDEN = Path(__file__).parents[2] / "golden"

UNEQUAL = Costs(forward=0.75, input_gradient=1, weight_gradient=0.625)


def spans(timeline: Timeline) -> list[float]:
    """Return for each worker the time from its first start to its last end."""
    return [worker[-1].end - worker[0].start for worker in timeline.workers]


def alive(order: tuple[Action, ...]) -> int:
    """Return the most chunk activations held where each is let go with its input gradient."""
    changes = {Op.FORWARD: 1, Op.BACKWARD: -1, Op.INPUT_GRADIENT: -1, Op.WEIGHT_GRADIENT: 0}
    held = [0]
    for action in order:
        held.append(held[-1] + changes[action.op])
    return max(held)


@pytest.mark.parametrize(
    ("schedule", "options", "makespan", "bubble", "overhead", "devices", "alive_s", "until_w"),
    [  # 4 workers, 8 microbatches, F = I = W = 1
        ("naive", {}, 96, 0.75, 3, [96, 93, 90, 87], [1] * 4, [1] * 4),
        ("gpipe", {}, 33, 0.2727, 0.375, [33, 30, 27, 24], [8] * 4, [8] * 4),
        ("1f1b", {}, 33, 0.2727, 0.375, [33, 30, 27, 24], [4, 3, 2, 1], [4, 3, 2, 1]),
        ("1f1b", {"warmup": EAGER}, 33, 0.2727, 0.375, [33, 30, 27, 24], [7, 5, 3, 1], [7, 5, 3, 1]),
        ("interleaved", {"num_chunks": 2}, 28.5, 0.1579, 0.1875, [28.5, 27, 25.5, 24], *[[5.5, 4.5, 3.5, 2.5]] * 2),
        ("interleaved", {"num_chunks": 4}, 26.25, 0.0857, 0.09375, None, *[[4.75, 4.25, 3.75, 3.25]] * 2),
        ("looped_bfs", {"num_chunks": 2}, 28.5, 0.1579, 0.1875, [28.5, 27, 25.5, 24], [8] * 4, [8] * 4),
        ("zbh1", {}, 27, 0.1111, 0.125, [27, 26, 25, 24], [4, 3, 2, 1], [4] * 4),
        ("zbh2", {}, 27, 0.1111, 0.125, [24] * 4, [7, 5, 3, 1], [7] * 4),
        ("zbv", {"num_chunks": 2}, 25.5, 0.0588, 0.0625, [24] * 4, [4] * 4, [4] * 4),
        ("dualpipev", {"num_chunks": 2}, 25.5, 0.0588, 0.0625, [25.5, 25, 24.5, 24], [4.5] * 4, [4.5] * 4),
    ],
)
def test_simulate_of_four_workers_gives_the_reference_numbers(
    schedule: str,
    options: dict[str, int],
    makespan: float,
    bubble: float,
    overhead: float,
    devices: list[float] | None,
    alive_s: list[float],
    until_w: list[float],
) -> None:
    plan = make_plan(schedule, num_workers=4, num_microbatches=8, **options)
    timeline = simulate(plan)
    assert timeline.makespan == makespan
    assert timeline.bubble_fraction == pytest.approx(bubble, abs=5e-5)
    assert timeline.ideal == 24
    assert timeline.busy == (24,) * 4
    assert timeline.makespan / timeline.ideal - 1 == pytest.approx(overhead)
    assert devices is None or spans(timeline) == devices
    assert [alive(order) / plan.placement.num_chunks for order in plan.orders] == alive_s
    assert list(timeline.peak_in_flight) == until_w


@pytest.mark.parametrize(
    ("num_microbatches", "group_size", "overhead"),
    [(9, 4, 10), (9, 5, 4.5), (10, 4, 9.5), (10, 5, 4.5), (11, 4, 5.5), (11, 6, 4.5)],
)
def test_interleaved_with_a_smaller_last_group_costs_the_published_overhead(
    num_microbatches: int, group_size: int, overhead: float
) -> None:
    size = {"num_workers": 4, "num_chunks": 2, "num_microbatches": num_microbatches, "group_size": group_size}
    # Made by hand, because make_plan refuses the slow ones.
    placement = looping(4, 2)
    plan = Plan(
        schedule="interleaved",
        placement=placement,
        num_microbatches=num_microbatches,
        num_slices=1,
        workers=tuple((*lower(order_interleaved(w, **size), placement=placement), *STEP_END) for w in range(4)),
        in_flight_bounds=tuple(in_flight_interleaved(w, **size) for w in range(4)),
    )
    assert simulate(plan).makespan - 3 * num_microbatches == overhead


def test_zbv_with_a_slow_input_gradient_takes_the_published_time() -> None:
    timeline = simulate(make_plan("zbv", num_workers=4, num_chunks=2, num_microbatches=8), Costs(input_gradient=2))
    assert timeline.makespan == 35
    assert timeline.ideal == 32


Form = Callable[[int, int, int, Costs], float | None]
"""Number of workers, microbatches and chunks, and costs, to a makespan; ``None`` where no form holds."""

Peaks = Callable[[int, int, int], list[int]]
"""Number of workers, microbatches and chunks to each worker's most chunk activations."""


def ideal(m: int, costs: Costs) -> float:
    return m * (costs.forward + costs.backward)


def makespan_naive(p: int, m: int, v: int, costs: Costs) -> float:
    return p * ideal(m, costs)


def makespan_gpipe(p: int, m: int, v: int, costs: Costs) -> float:
    return ideal(m + p - 1, costs)


def makespan_interleaved(p: int, m: int, v: int, costs: Costs) -> float | None:
    return ideal(m, costs) + ideal(p - 1, costs) / v if m % p == 0 else None


def makespan_looped_bfs(p: int, m: int, v: int, costs: Costs) -> float:
    # With fewer microbatches than workers each pass but the last lasts as long as one with p.
    return ideal(m, costs) + ideal((v - 1) * max(p - m, 0) + p - 1, costs) / v


def makespan_zbh1(p: int, m: int, v: int, costs: Costs) -> float | None:
    f, i, w = costs.forward, costs.input_gradient, costs.weight_gradient
    if w > min(f, i):
        return None
    # With fewer microbatches than stages the last I of stage 0 comes as in GPipe, and its W behind it.
    return ideal(m, costs) + (p - 1) * (f + i - w) if m >= p else (m + p - 1) * (f + i) + w


def makespan_zbh2(p: int, m: int, v: int, costs: Costs) -> float | None:
    return 3 * m + p - 1 if costs == Costs() and m >= 2 * p - 1 else None


def makespan_v(p: int, m: int, v: int, costs: Costs) -> float | None:
    return 3 * m + (p - 1) / 2 if costs == Costs() and m >= 2 * p - 1 else None


CLOSED_FORMS: list[tuple[str, dict[str, int | str], Form, Peaks]] = [
    ("naive", {}, makespan_naive, lambda p, m, v: [1] * p),
    ("gpipe", {}, makespan_gpipe, lambda p, m, v: [m] * p),
    ("1f1b", {}, makespan_gpipe, lambda p, m, v: [min(p - s, m) for s in range(p)]),
    ("1f1b", {"warmup": EAGER}, makespan_gpipe, lambda p, m, v: [min(2 * (p - s) - 1, m) for s in range(p)]),
    *(
        (
            "interleaved",
            {"num_chunks": v},
            makespan_interleaved,
            lambda p, m, v: [min(m * v, 2 * (p - 1 - s) + (v - 1) * p + 1) for s in range(p)],
        )
        for v in (2, 3, 4)
    ),
    *(("looped_bfs", {"num_chunks": v}, makespan_looped_bfs, lambda p, m, v: [m * v] * p) for v in (2, 3, 4)),
    ("zbh1", {}, makespan_zbh1, lambda p, m, v: [min(p, m)] * p),
    ("zbh2", {}, makespan_zbh2, lambda p, m, v: [min(2 * p - 1, m)] * p),
    ("zbv", {"num_chunks": 2}, makespan_v, lambda p, m, v: [min(2 * p, 2 * m, m + s + 1) for s in range(p)]),
    ("dualpipev", {"num_chunks": 2}, makespan_v, lambda p, m, v: [2 * p + 1] * p),
]


def sizes(schedule: str) -> Iterator[tuple[int, int]]:
    """Yield every number of workers up to 8 and microbatches up to 32 that the schedule runs."""
    for p in range(1, 9):
        for m in range(1, 33):
            if (schedule != "interleaved" or m % p == 0) and (schedule != "dualpipev" or m >= 2 * p):
                yield p, m


@pytest.mark.parametrize(
    ("schedule", "options", "form", "peaks"), CLOSED_FORMS, ids=[f"{case[0]}-{case[1]}" for case in CLOSED_FORMS]
)
def test_simulate_of_all_sizes_gives_the_closed_forms(
    schedule: str, options: dict[str, int], form: Form, peaks: Peaks
) -> None:
    v = options.get("num_chunks", 1)
    for p, m in sizes(schedule):
        plan = make_plan(schedule, num_workers=p, num_microbatches=m, **options)
        assert plan.notices == ()
        assert [peak_in_flight(worker)[0] for worker in plan.workers] == peaks(p, m, v), (p, m)
        assert list(plan.in_flight_bounds or ()) == peaks(p, m, v), (p, m)
        for costs in (Costs(), UNEQUAL):
            makespan = form(p, m, v, costs)
            if makespan is None:
                continue
            timeline = simulate(plan, costs)
            assert timeline.makespan == pytest.approx(makespan), (p, m, costs)
            assert timeline.ideal == pytest.approx(ideal(m, costs)), (p, m, costs)
            assert timeline.bubble_fraction == pytest.approx(1 - ideal(m, costs) / makespan, abs=1e-9), (p, m, costs)


def test_zbh2_with_unequal_costs_has_the_closed_form_of_the_longest_span() -> None:
    for costs in (Costs(), UNEQUAL):
        f, i, w = costs.forward, costs.input_gradient, costs.weight_gradient
        for p in range(1, 9):
            for m in range(2 * p - 1, 25, 3):
                longest = max(spans(simulate(make_plan("zbh2", num_workers=p, num_microbatches=m), costs)))
                assert longest == pytest.approx(ideal(m, costs) + (p - 1) * (f + i - 2 * w)), (p, m, costs)


def test_zbv_with_equal_costs_never_waits_once_it_has_begun() -> None:
    for p in range(1, 9):
        for m in range(2 * p - 1, 25, 3):
            timeline = simulate(make_plan("zbv", num_workers=p, num_chunks=2, num_microbatches=m))
            assert spans(timeline) == [3 * m] * p, (p, m)


@pytest.mark.parametrize("comm", [0.125, 1, 1.5])
def test_eager_1f1b_with_latency_up_to_half_a_pair_takes_as_long_as_gpipe(comm: float) -> None:
    for p in range(1, 9):
        for m in (1, 3, 8, 17):
            plan = make_plan("1f1b", num_workers=p, num_microbatches=m, warmup=EAGER)
            assert simulate(plan, Costs(comm=comm)).makespan == 3 * (m + p - 1) + 2 * (p - 1) * comm, (p, m)


@pytest.mark.parametrize(
    ("schedule", "num_workers", "num_chunks", "num_microbatches", "figure"),
    [
        ("interleaved", 2, 2, 4, "interleaved_pp2_c2_m4.txt"),
        ("looped_bfs", 2, 2, 3, "looped_bfs_pp2_c2_m3.txt"),
        ("zbh1", 3, 1, 5, "zbh1_pp3_m5.txt"),
        ("zbh2", 3, 1, 5, "zbh2_pp3_m5.txt"),
        ("zbv", 2, 2, 4, "zbv_pp2_m4.txt"),
        ("dualpipev", 2, 2, 4, "dualpipev_pp2_m4.txt"),
    ],
)
def test_draw_of_a_schedule_is_the_figure(
    schedule: str, num_workers: int, num_chunks: int, num_microbatches: int, figure: str
) -> None:
    plan = make_plan(schedule, num_workers=num_workers, num_chunks=num_chunks, num_microbatches=num_microbatches)
    assert draw(simulate(plan)) == (GOLDEN / figure).read_text()
