"""Activations are held as long as the plan says, and no longer: the most at once, and none left behind.

Two measures that know nothing of each other: the engine's own count, and the memory behind every tensor that a
forward saved.
"""

import pytest

from benchmarks.local_case import LocalStep
from coordinator.schedule.in_flight import peak_in_flight
from tests.integration.parity.conftest import Run
from tests.integration.parity.layouts import EACH, Layout

pytestmark = pytest.mark.timeout(180)

P4_M8 = [
    (Layout("naive", 4, 8), [1, 1, 1, 1]),
    (Layout("gpipe", 4, 8), [8, 8, 8, 8]),
    (Layout("1f1b", 4, 8), [4, 3, 2, 1]),
    (Layout("1f1b", 4, 8, warmup="eager"), [7, 5, 3, 1]),
    (Layout("interleaved", 4, 8, 2), [11, 9, 7, 5]),
    (Layout("interleaved", 4, 8, 3), [15, 13, 11, 9]),
    (Layout("looped_bfs", 4, 8, 1), [8, 8, 8, 8]),
    (Layout("looped_bfs", 4, 8, 2), [16, 16, 16, 16]),
    (Layout("looped_bfs", 4, 8, 3), [24, 24, 24, 24]),
    (Layout("zbh1", 4, 8), [4, 4, 4, 4]),
    (Layout("zbh2", 4, 8), [7, 7, 7, 7]),
    (Layout("zbv", 4, 8, 2), [8, 8, 8, 8]),
    (Layout("dualpipev", 4, 8, 2), [9, 9, 9, 9]),
]
"""Chunk activations, from the start of F to the end of B or W, where four full stages run eight microbatches.

The published tables, times the chunks; looped_bfs holds all M of every chunk; interleaved
min(Mv, 2(P-1-s) + (v-1)P + 1).
"""

P2_M8 = [
    (Layout("naive", 2, 8), [1, 1]),
    (Layout("gpipe", 2, 8), [8, 8]),
    (Layout("1f1b", 2, 8), [2, 1]),
    (Layout("1f1b", 2, 8, warmup="eager"), [3, 1]),
    (Layout("interleaved", 2, 8, 2), [5, 3]),
    (Layout("interleaved", 2, 8, 3), [7, 5]),
    (Layout("looped_bfs", 2, 8, 2), [16, 16]),
    (Layout("zbh1", 2, 8), [2, 2]),
    (Layout("zbh2", 2, 8), [3, 3]),
    (Layout("zbv", 2, 8, 2), [4, 4]),
    (Layout("dualpipev", 2, 8, 2), [5, 5]),
]
"""By the closed forms: 1f1b P-s, eager 2(P-s)-1, zbh1 P, zbh2 2P-1, zbv P full stages, dualpipev P + 1/2 of them."""

M16 = [
    (Layout(layout.schedule, layout.pp, 16, layout.num_chunks, warmup=layout.warmup), peaks)
    for layout, peaks in (*P4_M8, *P2_M8)
    if layout.schedule not in ("gpipe", "looped_bfs")
]
"""Twice the microbatches hold no more, but under schedules that hold all of them."""

ALL_HELD = [
    (Layout("gpipe", 2, 16), [16, 16]),
    (Layout("gpipe", 4, 16), [16, 16, 16, 16]),
    (Layout("looped_bfs", 2, 16, 2), [32, 32]),
    (Layout("looped_bfs", 4, 16, 3), [48, 48, 48, 48]),
]


@pytest.mark.parametrize(("layout", "peaks"), [*P4_M8, *P2_M8, *M16, *ALL_HELD], ids=str)
def test_peak_of_each_worker_is_the_plans(layout: Layout, peaks: list[int], *, run: Run) -> None:
    rows = LocalStep((4, 5, 6, 7) * (layout.num_microbatches // 4))
    case = layout.case(None, (rows,), watches_activations=True)
    result = run(case)
    assert [peak_in_flight(worker)[0] for worker in case.train_plan().workers] == peaks
    assert [[step["peak_in_flight"] for step in worker["steps"]] for worker in result.workers] == [
        [peak] for peak in peaks
    ]
    assert [worker["live_peak"] for worker in result.workers] == peaks
    assert [worker["live_at_end"] for worker in result.workers] == [0] * layout.pp


@pytest.mark.parametrize("layout", [Layout("zbh1", 2, 8), Layout("zbh2", 4, 8), Layout("zbv", 4, 8, 2)], ids=str)
def test_first_half_of_a_backward_frees_what_the_second_does_not_need(layout: Layout, *, run: Run) -> None:
    """Only inputs of linear layers wait for W. Worker 0 of zbh1 and zbh2 has whole backwards only."""
    case = layout.case(None, (LocalStep((12, 12) * 8),), watches_activations=True)
    shares = [worker["live_share_between_halves"] for worker in run(case).workers]
    assert all(0 < share < 0.5 for share in shares[1:]), shares
    assert 0 < shares[0] < 0.5 if layout.schedule == "zbv" else shares[0] == 0


@pytest.mark.parametrize("layout", EACH, ids=str)
def test_watching_activations_changes_no_bit(layout: Layout, *, run: Run) -> None:
    rows = (LocalStep((4, 5, 6, 7)), LocalStep((7, 3, 2, 9)))
    watched, plain = (run(layout.case(None, rows, watches_activations=watched)) for watched in (True, False))
    assert watched.merged("final").keys() == plain.merged("final").keys()
    assert all(tensor.equal(plain.merged("final")[name]) for name, tensor in watched.merged("final").items())
