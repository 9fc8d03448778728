"""Columns and shapes of microbatches."""

import numpy as np
import pytest

from dataloader_svc.microbatches import ColumnName
from dataloader_svc.settings import Padding
from dataloader_svc.sharding import Sharding
from tests.unit.data_rows import PAD, batcher, one_step, split_of

ALL = tuple(ColumnName)


def test_microbatch_longest_pads_to_its_longest_row() -> None:
    rows = split_of([5, 6, 7], [1, 2, 3, 4, 5], [8])

    microbatch = batcher(rows).microbatch(4, np.array([2, 0]), ALL, pass_name="epoch 0")

    values = {column.name: column.values.tolist() for column in microbatch.columns}
    assert microbatch.index == 4
    assert microbatch.row_ids.tolist() == [2, 0]
    assert values == {
        ColumnName.INPUT_IDS: [[8, 99, 99], [5, 6, 7]],
        ColumnName.TOKEN_TYPE_IDS: [[0, 0, 0], [1, 0, 1]],
        ColumnName.ATTENTION_MASK: [[1, 0, 0], [1, 1, 1]],
        ColumnName.LABELS: [2, 0],
    }


def test_microbatch_max_length_pads_to_max_length() -> None:
    cutter = batcher(split_of([5, 6, 7], [1]), padding=Padding.MAX_LENGTH)

    microbatch = cutter.microbatch(0, np.array([0, 1]), ALL, pass_name="epoch 0")

    assert microbatch.columns[0].values.shape == (2, 8)
    assert microbatch.columns[2].values.sum() == 4


def test_microbatch_columns_come_in_the_order_asked_as_little_endian_64_bit() -> None:
    asked = (ColumnName.LABELS, ColumnName.ATTENTION_MASK)

    microbatch = batcher(split_of([5, 6], [7])).microbatch(0, np.array([1]), asked, pass_name="epoch 0")

    assert tuple(column.name for column in microbatch.columns) == asked
    assert {column.values.dtype.str for column in microbatch.columns} == {"<i8"}
    assert microbatch.columns[0].values.tobytes() == b"\x01" + bytes(7)


def test_microbatch_without_rows_has_no_columns() -> None:
    microbatch = batcher(split_of([5, 6])).microbatch(3, np.array([], dtype=np.int64), ALL, pass_name="epoch 0")

    assert (microbatch.index, microbatch.row_ids.tolist(), microbatch.columns) == (3, [], ())


def test_microbatch_of_rows_without_a_token_is_one_position_wide() -> None:
    cutter = batcher(split_of([], []))

    ids, _, mask, labels = cutter.microbatch(0, np.array([0, 1]), ALL, pass_name="epoch 0").columns

    assert (ids.values.tolist(), mask.values.tolist(), labels.values.tolist()) == ([[PAD], [PAD]], [[0], [0]], [0, 1])
    assert [(shape.num_rows, shape.width) for shape in cutter.shape(one_step([0, 1])).replicas[0]] == [(2, 1)]


def test_microbatch_of_a_split_without_labels_has_all_other_columns() -> None:
    cutter = batcher(split_of([5, 6], [7], labelled=False))
    columns = cutter.microbatch(0, np.array([0, 1]), ALL, pass_name="split test").columns
    assert [column.name for column in columns] == [name for name in ALL if name != "labels"]


def test_shape_widths_are_each_microbatch_s_own() -> None:
    lengths = [7, 3, 12, 1, 32, 32, 9, 2]
    rows = split_of(*([1] * length for length in lengths))

    shape = batcher(rows).shape(one_step([0, 1], [2, 3], [4, 5], [6, 7]))

    assert [microbatch.width for microbatch in shape.replicas[0]] == [7, 12, 32, 9]
    assert shape.num_tokens == sum(lengths)
    assert shape.num_positions == 2 * (7 + 12 + 32 + 9)
    assert (shape.step, shape.epoch, shape.num_rows, shape.denominator) == (3, 1, 8, 8)


@pytest.mark.parametrize("padding", Padding)
def test_shape_tells_what_microbatch_then_builds(padding: Padding) -> None:
    rows = split_of(*([1] * (1 + index % 5) for index in range(11)))
    sharding = Sharding(num_rows=11, batch_size=7, num_replicas=2, num_microbatches=4, seed=1, drop_last=False)
    cutter = batcher(rows, padding=padding)

    for number in (1, 2):
        step = sharding.step(number)
        for shapes, replica in zip(cutter.shape(step).replicas, step.replicas, strict=True):
            for index, (shape, row_ids) in enumerate(zip(shapes, replica, strict=True)):
                columns = cutter.microbatch(index, row_ids, (ColumnName.ATTENTION_MASK,), pass_name="epoch 0").columns
                built = columns[0].values if columns else np.zeros((0, 0))
                assert built.shape == (shape.num_rows, shape.width)
                assert built.sum() == shape.num_tokens


def test_shape_of_microbatch_without_rows_keeps_its_place() -> None:
    shapes = batcher(split_of([5, 6], [7])).shape(one_step([1], [0], [], [])).replicas[0]

    assert [(shape.num_rows, shape.width) for shape in shapes] == [(1, 1), (1, 2), (0, 0), (0, 0)]


@pytest.mark.parametrize(("record_rows", "row_ids"), [(True, [(1, 0), ()]), (False, [(), ()])])
def test_shape_names_rows_where_the_job_records_them(record_rows: bool, row_ids: list[tuple[int, ...]]) -> None:
    shape = batcher(split_of([5, 6], [7]), record_rows=record_rows).shape(one_step([1, 0], []))

    assert [microbatch.row_ids for microbatch in shape.replicas[0]] == row_ids
