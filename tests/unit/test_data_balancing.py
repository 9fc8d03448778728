"""Rows regrouped by length: the grouping that the rule names, found by trying all.

That no row is lost is in test_data_sharding_properties.
"""

import itertools

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dataloader_svc.balancing import MOST_PLACES, group_ends, length_balanced
from dataloader_svc.corpus import read_rows
from dataloader_svc.sharding import Sharding
from dataloader_svc.splits import SplitName
from dataloader_svc.tokens import open_tokenizer
from tests.data_jobs import minilm, real_glue
from tests.data_jobs import settings as job_settings

LENGTHS = st.lists(st.integers(1, 40), min_size=1, max_size=10)


def groups_of(lengths: list[int], ends: list[int]) -> list[list[int]]:
    return [lengths[first:end] for first, end in itertools.pairwise([0, *ends])]


def sizes_of(lengths: list[int], ends: list[int]) -> list[int]:
    """Return rows x width of every group that has rows."""
    return [len(group) * max(group) for group in groups_of(lengths, ends) if group]


def expected_size(lengths: list[int], num_groups: int) -> tuple[int, int]:
    """Return the sum and the largest group that the rule asks for, of all groupings there are."""
    filled = min(num_groups, len(lengths))
    found = set()
    for inner in itertools.combinations(range(1, len(lengths)), filled - 1):
        sizes = sizes_of(lengths, [*inner, len(lengths)])
        found.add((sum(sizes), max(sizes)))
    even = [(total, largest) for total, largest in found if largest <= 1.5 * total / filled]
    return min(even) if even else min(found, key=lambda pair: (pair[1], pair[0]))


@given(lengths=LENGTHS, num_groups=st.integers(1, 6))
@settings(max_examples=300, deadline=None)
def test_groups_are_those_of_the_rule(lengths: list[int], num_groups: int) -> None:
    lengths.sort()
    ends = group_ends(np.array(lengths), num_groups)
    assert len(ends) == num_groups
    assert ends == sorted(ends)
    assert ends[-1] == len(lengths)
    filled = min(num_groups, len(lengths))
    assert all(groups_of(lengths, ends[:filled])), "no group is empty where there are rows enough"
    sizes = sizes_of(lengths, ends)
    assert (sum(sizes), max(sizes)) == expected_size(lengths, num_groups)


@pytest.mark.parametrize(
    ("lengths", "num_groups", "ends"),
    [
        ([3, 3, 3, 9, 9], 2, [3, 5]),  # 9 + 18, of 13.5 at a mean at most 20.25
        ([4, 4, 4, 4], 2, [2, 4]),
        ([1, 1, 2, 5], 3, [1, 3, 4]),  # 2 + 2 + 5 is less, and no larger at most, but 5 is more than 1.5 x 9 / 3
        ([2, 2, 9], 3, [1, 2, 3]),  # 9 is more than 1.5 x 13 / 3, but nothing is evener
        ([5], 3, [1, 1, 1]),
        ([], 2, [0, 0]),
    ],
)
def test_groups_of_a_few_rows_are_known(lengths: list[int], num_groups: int, ends: list[int]) -> None:
    assert group_ends(np.array(lengths, dtype=np.int64), num_groups) == ends


@pytest.mark.timeout(60)
@pytest.mark.parametrize(("num_rows", "num_groups"), [(127, 127), (256, 256), (2**16, 2**14)])
def test_thousands_of_groups_are_cut_at_once(num_rows: int, num_groups: int) -> None:
    """As many replicas, slices and microbatches make them; a search among all cuts took minutes a step."""
    size = num_rows // num_groups
    assert group_ends(np.arange(1, num_rows + 1), num_groups) == list(range(size, num_rows + 1, size))


def test_groups_of_more_rows_than_places_are_as_many_and_cover_all() -> None:
    lengths_n = np.sort(np.random.RandomState(3).randint(3, 128, size=5 * MOST_PLACES + 7))
    ends = group_ends(lengths_n, 16)
    sizes = sizes_of(lengths_n.tolist(), ends)
    assert ends[-1] == len(lengths_n)
    assert max(sizes) <= 1.5 * sum(sizes) / 16
    assert sum(sizes) < 1.1 * lengths_n.sum(), "in the order of the draw it is 1.9 times"


def test_replicas_get_about_as_much_of_a_regrouped_step() -> None:
    lengths_N = np.random.RandomState(5).randint(3, 128, size=64)
    step = Sharding(
        **{"num_rows": 64, "batch_size": 64, "seed": 1, "drop_last": False},
        num_replicas=2,
        num_microbatches=8,
        grouping=length_balanced(lengths_N),
    ).step(1)
    work = [sum(len(rows) * int(lengths_N[rows].max()) for rows in replica) for replica in step.replicas]
    assert max(work) < 1.1 * min(work)


def test_replicas_take_turns_at_the_longer_of_two_neighbours() -> None:
    """Else one replica would have the longer one of each pair: 16 tokens beside 20, not 18 beside 18."""
    lengths_N = np.arange(1, 9)
    replicas = length_balanced(lengths_N)(np.arange(8)[::-1], 2, 4)
    lengths = [[lengths_N[rows].tolist() for rows in replica] for replica in replicas]
    assert lengths == [[[1], [4], [5], [8]], [[2], [3], [6], [7]]]


@pytest.mark.real_glue
@pytest.mark.parametrize(("task", "in_order"), [("sst2", 0.44), ("mrpc", 0.20)])
def test_real_rows_regrouped_are_padded_less_than_8_percent(task: str, in_order: float) -> None:
    """Batch 32, 8 microbatches, the tokens of a real BERT's tokenizer."""
    values = {"data.task": task, "data.source": str(real_glue()), "data.tokenizer": str(minilm())}
    job = job_settings({**values, "data.max_train_rows": 3_600})
    rows = open_tokenizer(job.tokenizer).tokenise(read_rows(job, SplitName.TRAIN), max_length=128)
    lengths_N = np.diff(rows.starts)

    def padding(sharding: Sharding) -> float:
        steps = [sharding.step(step + 1) for step in range(sharding.steps_per_epoch)]
        batches = [lengths_N[rows] for step in steps for replica in step.replicas for rows in replica if len(rows)]
        return 1 - sum(int(each.sum()) for each in batches) / sum(len(each) * int(each.max()) for each in batches)

    assert padding(job.training(rows.num_rows)) == pytest.approx(in_order, abs=0.015)
    assert padding(job.training(rows.num_rows, grouping=length_balanced(lengths_N))) < 0.08
