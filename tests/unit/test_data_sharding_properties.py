"""Which rows go where, for any layout and batch: properties of the jobs' own settings, hypothesis draws the numbers."""

import itertools
from dataclasses import dataclass, replace

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from dataloader_svc.balancing import length_balanced
from dataloader_svc.sharding import Sharding, StepRows, row_order
from tests.data_jobs import settings as job_settings

REPLICAS = (1, 2, 3, 4)


@dataclass(frozen=True, kw_only=True)
class Job:
    """What of a job decides its rows."""

    lengths: list[int]
    """Of each row of the split, in tokens."""
    batch: int
    seed: int
    dp: int
    accumulation: int
    microbatches: int
    drop_last: bool
    shuffle: bool
    balanced: bool

    @property
    def num_rows(self) -> int:
        return len(self.lengths)

    def training(self) -> Sharding:
        """Return how its training split falls into steps, as its spec says."""
        changes = {
            "data.shuffle": self.shuffle,
            "data.drop_last": self.drop_last,
            "train.seed": self.seed,
            "train.global_batch_size": self.batch,
            "train.gradient_accumulation_steps": self.accumulation,
            "schedule.num_microbatches": self.microbatches,
            "parallel.dp": self.dp,
        }
        grouping = {"grouping": length_balanced(np.array(self.lengths))} if self.balanced else {}
        return job_settings(changes).training(self.num_rows, **grouping)


JOBS = st.builds(
    Job,
    lengths=st.lists(st.integers(1, 99), min_size=1, max_size=50),
    batch=st.integers(1, 20),
    seed=st.integers(0, 2**63 - 1),
    dp=st.sampled_from(REPLICAS),
    accumulation=st.integers(1, 3),
    microbatches=st.integers(1, 6),
    drop_last=st.booleans(),
    shuffle=st.booleans(),
    balanced=st.booleans(),
)
EPOCHS = st.integers(1, 3)


def rows_of(step: StepRows) -> list[int]:
    """Return the rows of a step, microbatch after microbatch."""
    return [int(row) for replica in step.replicas for rows in replica for row in rows]


def batches(job: Job, *, epochs: int) -> list[list[list[int]]]:
    """Return the rows of each step of each epoch, which steps must say that they belong to."""
    sharding, found = job.training(), []
    for epoch in range(epochs):
        first = epoch * sharding.steps_per_epoch + 1
        steps = [sharding.step(step) for step in range(first, first + sharding.steps_per_epoch)]
        assert [step.epoch for step in steps] == [epoch] * len(steps)
        found.append([rows_of(step) for step in steps])
    return found


@given(job=JOBS, epochs=EPOCHS)
@settings(max_examples=150, deadline=None)
def test_epoch_has_each_row_once_but_the_last_ones_that_drop_last_leaves_out(job: Job, epochs: int) -> None:
    kept = batches(replace(job, drop_last=False, balanced=False), epochs=epochs)
    orders = []
    for epoch, whole in zip(batches(job, epochs=epochs), kept, strict=True):
        order = [row for batch in whole for row in batch]
        assert sorted(order) == list(range(job.num_rows))
        num_left_out = job.num_rows % job.batch if job.drop_last else 0
        assert sorted(row for batch in epoch for row in batch) == sorted(order[: job.num_rows - num_left_out])
        assert [len(batch) for batch in epoch[:-1]] == [job.batch] * (len(epoch) - 1)
        orders.append(order)
    if not job.shuffle:
        assert orders == [list(range(job.num_rows))] * epochs
    elif job.num_rows >= 10:  # two orders of ten rows are the same once in three million times
        assert all(one != other for one, other in itertools.pairwise(orders))


@given(job=JOBS)
@settings(max_examples=150, deadline=None)
def test_shards_of_a_step_are_disjoint_and_as_many_as_the_layout_has(job: Job) -> None:
    sharding = job.training()
    for number in range(1, 2 * sharding.steps_per_epoch + 1):
        step = sharding.step(number)
        assert [len(replica) for replica in step.replicas] == [job.accumulation * job.microbatches] * job.dp
        rows = rows_of(step)
        assert len(set(rows)) == len(rows) == step.num_rows
        if not job.balanced:
            replicas = [sum(map(len, replica)) for replica in step.replicas]
            for sizes in (replicas, *([len(rows) for rows in replica] for replica in step.replicas)):
                assert sizes == sorted(sizes, reverse=True)
                assert max(sizes) - min(sizes) <= 1


@given(job=JOBS, data=st.data())
@settings(max_examples=100, deadline=None)
def test_step_is_the_same_on_every_call_in_any_order_and_after_a_restart(job: Job, data: st.DataObject) -> None:
    sharding = job.training()
    numbers = range(1, 3 * sharding.steps_per_epoch + 1)

    def shards(sharding: Sharding, number: int) -> list[list[list[int]]]:
        return [[rows.tolist() for rows in replica] for replica in sharding.step(number).replicas]

    expected = {number: shards(sharding, number) for number in numbers}
    again = data.draw(st.lists(st.sampled_from(numbers), max_size=10)) if numbers else []
    assert [shards(sharding, number) for number in again] == [expected[number] for number in again]
    row_order.cache_clear()
    restarted = job.training()
    assert {number: shards(restarted, number) for number in reversed(numbers)} == expected


@given(job=JOBS, accumulation=st.integers(1, 3), microbatches=st.integers(1, 6))
@settings(max_examples=100, deadline=None)
def test_global_batches_are_the_same_for_any_replicas_slices_and_microbatches(
    job: Job, accumulation: int, microbatches: int
) -> None:
    """In their order, where they are not regrouped; else as sets."""
    alone = batches(replace(job, dp=1, accumulation=1, microbatches=1, balanced=False), epochs=2)
    for dp in REPLICAS:
        layout = replace(job, dp=dp, accumulation=accumulation, microbatches=microbatches)
        assert batches(replace(layout, balanced=False), epochs=2) == alone
        regrouped = batches(replace(layout, balanced=True), epochs=2)
        assert [[sorted(batch) for batch in epoch] for epoch in regrouped] == [
            [sorted(batch) for batch in epoch] for epoch in alone
        ]


@given(
    num_rows=st.integers(0, 60), batch=st.integers(1, 20), microbatches=st.integers(1, 6), dp=st.sampled_from(REPLICAS)
)
@settings(max_examples=100, deadline=None)
def test_evaluation_has_each_row_once_in_the_order_of_the_file(
    num_rows: int, batch: int, microbatches: int, dp: int
) -> None:
    """Also rows that drop_last would leave out of training."""
    changes = {"eval.batch_size": batch, "schedule.num_microbatches": microbatches, "parallel.dp": dp}
    sharding = job_settings({**changes, "data.drop_last": True}).evaluation(num_rows)
    steps = [rows_of(sharding.step(number)) for number in range(1, sharding.steps_per_epoch + 1)]
    assert [row for step in steps for row in step] == list(range(num_rows))
    assert all(len(step) == batch for step in steps[:-1])
