"""What is predicted of the rows of a split, by objective."""

from collections.abc import Callable

import numpy as np
import pytest

from dataloader_svc.masking import IGNORED
from dataloader_svc.microbatches import ColumnName, Microbatch
from dataloader_svc.settings import Padding
from dataloader_svc.sharding import Sharding
from dataloader_svc.targets import HiddenTokens, NextTokens, Target
from dataloader_svc.tokens import TokenisedRows
from tests.unit.data_rows import MASK, PAD, batcher, masking, one_step, one_step_of_replicas, split_of

ALL = tuple(ColumnName)
MakeTarget = Callable[[TokenisedRows], Target]


def hidden_tokens(rows: TokenisedRows) -> Target:
    return HiddenTokens(rows, masking())


TOKEN_LEVEL = pytest.mark.parametrize("make_target", [NextTokens, hidden_tokens])


def values(microbatch: Microbatch) -> dict[ColumnName, list[list[int]]]:
    return {column.name: column.values.tolist() for column in microbatch.columns}


def test_next_tokens_labels_are_the_ids_one_place_on() -> None:
    rows = split_of([91, 5, 6, 92], [91, 92], [7], [], labelled=False)

    columns = values(batcher(rows, NextTokens(rows)).microbatch(0, np.array([2, 0, 3, 1]), ALL, pass_name="epoch 0"))

    assert columns == {
        ColumnName.INPUT_IDS: [[7, PAD, PAD, PAD], [91, 5, 6, 92], [PAD] * 4, [91, 92, PAD, PAD]],
        ColumnName.TOKEN_TYPE_IDS: [[1, 0, 0, 0], [1, 1, 0, 0], [0] * 4, [1, 0, 0, 0]],
        ColumnName.ATTENTION_MASK: [[1, 0, 0, 0], [1] * 4, [0] * 4, [1, 1, 0, 0]],
        ColumnName.LABELS: [
            [IGNORED] * 4,
            [5, 6, 92, IGNORED],
            [IGNORED] * 4,
            [92, IGNORED, IGNORED, IGNORED],
        ],
    }


def test_next_tokens_row_that_fills_the_width_has_no_label_at_its_end() -> None:
    rows = split_of([91, *range(6), 92])
    cutter = batcher(rows, NextTokens(rows), padding=Padding.MAX_LENGTH)

    columns = values(cutter.microbatch(0, np.array([0]), ALL, pass_name="epoch 0"))

    assert columns[ColumnName.LABELS] == [[*range(6), 92, IGNORED]]


def test_hidden_tokens_ids_and_labels_belong_together() -> None:
    rows = split_of([91, 5, 92], [91, 92], [], [91, 6, 92, 6, 92], labelled=False)
    target = HiddenTokens(rows, masking(probability=1))

    columns = values(batcher(rows, target).microbatch(0, np.array([3, 0, 1, 2]), ALL, pass_name="epoch 0"))

    assert columns[ColumnName.LABELS] == [
        [IGNORED, 6, IGNORED, 6, IGNORED],
        [IGNORED, 5, IGNORED, IGNORED, IGNORED],
        [IGNORED] * 5,
        [IGNORED] * 5,
    ]
    ids = np.array(columns[ColumnName.INPUT_IDS])
    true = np.array([[91, 6, 92, 6, 92], [91, 5, 92, PAD, PAD], [91, 92, PAD, PAD, PAD], [PAD] * 5])
    unlabelled = np.array(columns[ColumnName.LABELS]) == IGNORED
    assert (ids[unlabelled] == true[unlabelled]).all()
    assert MASK in ids


@TOKEN_LEVEL
def test_columns_asked_for_apart_are_those_asked_for_together(make_target: MakeTarget) -> None:
    rows = split_of(*([91, *range(row, 38), 92] for row in range(6)), labelled=False)
    cutter = batcher(rows, make_target(rows))
    together = values(cutter.microbatch(0, np.arange(6), ALL, pass_name="epoch 2"))

    for name in ALL:
        assert values(cutter.microbatch(0, np.arange(6), (name,), pass_name="epoch 2")) == {name: together[name]}


@TOKEN_LEVEL
@pytest.mark.parametrize("padding", Padding)
def test_rows_have_their_ids_and_labels_in_any_layout(make_target: MakeTarget, padding: Padding) -> None:
    rows = split_of(*([91, *range(length), 92] for length in (0, 6, 3, 1, 5, 2, 6, 4, 1, 0, 5)), labelled=False)

    def columns_of(padding: Padding, *, batch_size: int, num_replicas: int, num_microbatches: int) -> set[str]:
        cutter = batcher(rows, make_target(rows), padding=padding)
        shards = Sharding(
            num_rows=rows.num_rows,
            batch_size=batch_size,
            num_replicas=num_replicas,
            num_microbatches=num_microbatches,
            seed=batch_size,
            drop_last=False,
        )
        found = set()
        for number in range(1, shards.steps_per_epoch + 1):
            step = shards.step(number)
            counted = 0
            for microbatch in (row_ids for replica in step.replicas for row_ids in replica if len(row_ids)):
                columns = cutter.microbatch(0, microbatch, ALL, pass_name="epoch 0").columns
                ids, _, mask, labels = (column.values for column in columns)
                assert (labels[mask == 0] == IGNORED).all()
                counted += int((labels != IGNORED).sum())
                for at, row in enumerate(microbatch.tolist()):
                    found.add(f"{row} {ids[at][mask[at] == 1].tolist()} {labels[at][mask[at] == 1].tolist()}")
            assert cutter.shape(step).denominator == max(1, counted)
        return found

    whole = columns_of(Padding.LONGEST, batch_size=11, num_replicas=1, num_microbatches=1)
    assert len(whole) == 11
    for layout in ((11, 1, 4), (4, 2, 1), (5, 3, 2), (1, 1, 1)):
        batch_size, replicas, microbatches = layout
        assert whole == columns_of(padding, batch_size=batch_size, num_replicas=replicas, num_microbatches=microbatches)


def test_denominator_is_the_valid_labels_of_all_microbatches_and_replicas() -> None:
    # 1 valid label in one microbatch and 9 in the other: the loss is a mean over 10, not of two means.
    following = split_of([91, 92], [91, *range(8), 92])
    hidden = split_of([91, 7, 92], [91, *range(40), *range(20), 92])
    for rows, target in ((following, NextTokens(following)), (hidden, HiddenTokens(hidden, masking()))):
        cutter = batcher(rows, target)
        for step in (one_step([0], [1]), one_step_of_replicas([[0]], [[1]]), one_step([0, 1], [])):
            shape = cutter.shape(step)
            assert (shape.denominator, shape.num_rows) == (10, 2)
        assert [shape.num_counted for shape in cutter.shape(one_step([0], [1])).replicas[0]] == [1, 9]


@TOKEN_LEVEL
def test_denominator_of_a_step_without_a_counted_token_is_1(make_target: MakeTarget) -> None:
    rows = split_of([91], [], [92])

    shape = batcher(rows, make_target(rows)).shape(one_step([0, 1], [2]))

    assert [microbatch.num_counted for microbatch in shape.replicas[0]] == [0, 0]
    assert shape.denominator == 1
