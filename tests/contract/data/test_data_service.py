"""The data service over a real socket."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from prometheus_client import CollectorRegistry
from takt.v1 import data_pb2 as pb
from takt.v1.data_pb2_grpc import DataServiceStub

from dataloader_svc.tokens import open_tokenizer
from tests.data_calls import ALL, WORDS, Service, add_job, describe, read, sst2
from tests.data_jobs import minilm, real_glue, spec_json, write_sst2


def values(column: pb.Column) -> np.ndarray[Any, np.dtype[np.int64]]:
    assert column.data_type == pb.DATA_TYPE_INT64
    return np.frombuffer(column.data, dtype="<i8").reshape(tuple(column.shape))


async def test_read_step_again_in_other_order_and_after_restart_is_the_same_bytes(
    service: Service, state: Path, rows: Path
) -> None:
    add_job(state, "job", sst2(rows, train__global_batch_size=4, schedule__num_microbatches=2, parallel__dp=2))
    places = [(step, dp_rank) for step in range(1, 10) for dp_rank in (0, 1)]

    async def all_bytes(order: list[tuple[int, int]], stub: DataServiceStub) -> dict[tuple[int, int], list[bytes]]:
        return {
            place: [
                answer.SerializeToString(deterministic=True)
                for answer in await read(stub, "job", place[0], dp_rank=place[1])
            ]
            for place in order
        }

    async with service() as stub:
        first = await all_bytes(places, stub)
        again = await all_bytes(places[::-1], stub)
    async with service() as stub:
        restarted = await all_bytes(places[5:] + places[:5], stub)

    assert first == again == restarted
    assert len({tuple(answers) for answers in first.values()}) == len(places)


@pytest.mark.parametrize("dp", [1, 2, 3])
async def test_epochs_through_the_service_have_each_row_once_with_its_own_text_and_label(
    service: Service, state: Path, rows: Path, dp: int
) -> None:
    add_job(state, "job", sst2(rows, train__global_batch_size=4, schedule__num_microbatches=3, parallel__dp=dp))
    lines = (rows / "SST-2" / "train.tsv").read_text().splitlines()[1:]
    vocabulary = json.loads((rows / "tokenizer.json").read_text())["model"]["vocab"]
    expected = {
        row: ([2, *(vocabulary[word] for word in line.split("\t")[0].split()), 3], int(line.split("\t")[1]))
        for row, line in enumerate(lines)
    }
    orders = []

    async with service() as stub:
        for epoch in range(3):
            seen: list[int] = []
            for step in range(3 * epoch + 1, 3 * epoch + 4):
                for rank in range(dp):
                    for answer in await read(stub, "job", step, dp_rank=rank):
                        seen += answer.row_ids
                        if answer.row_ids:
                            ids, types, mask, labels = map(values, answer.columns)
                            for index, row in enumerate(answer.row_ids):
                                assert ids[index][mask[index] == 1].tolist() == expected[row][0]
                                assert labels[index] == expected[row][1]
                            assert not types.any()
                            assert not ids[mask == 0].any()
            assert sorted(seen) == list(range(11))
            orders.append(seen)

    assert len({tuple(order) for order in orders}) == 3


async def test_describe_steps_tells_what_read_step_then_brings(service: Service, state: Path, rows: Path) -> None:
    changes = {"train__global_batch_size": 8, "train__gradient_accumulation_steps": 2, "schedule__num_microbatches": 3}
    add_job(state, "job", sst2(rows, parallel__dp=2, data__record_rows=True, **changes))

    async with service() as stub:
        steps = await describe(stub, "job", 1, 100)
        assert [(step.step, step.epoch, step.denominator, step.examples) for step in steps] == [
            *((1, 0, 8, 8), (2, 0, 3, 3), (3, 1, 8, 8), (4, 1, 3, 3), (5, 2, 8, 8), (6, 2, 3, 3))
        ]
        for step in steps:
            tokens = positions = 0
            for rank, replica in enumerate(step.replicas):
                answers = await read(stub, "job", step.step, dp_rank=rank)
                assert [answer.microbatch for answer in answers] == list(range(6))
                for shape, answer in zip(replica.microbatches, answers, strict=True):
                    assert list(shape.row_ids) == list(answer.row_ids)
                    assert shape.rows == len(answer.row_ids)
                    assert (shape.width == 0) == (shape.rows == 0)
                    for column in answer.columns[:3]:
                        assert tuple(column.shape) == (shape.rows, shape.width)
                    if shape.rows:
                        assert tuple(answer.columns[3].shape) == (shape.rows,)
                        tokens += int(values(answer.columns[2]).sum())
                        positions += shape.rows * shape.width
            assert (step.tokens, step.padded_tokens) == (tokens, positions - tokens)


async def test_describe_steps_widths_follow_each_microbatch(service: Service, state: Path, tmp_path: Path) -> None:
    write_sst2(tmp_path, [("film " * (width - 2), 0) for width in (7, 12, 32, 9)])
    open_tokenizer(None).save(tmp_path)
    fixed = {"data__shuffle": False, "schedule__num_microbatches": 4, "train__global_batch_size": 4}
    add_job(state, "longest", sst2(tmp_path, **fixed))
    add_job(state, "fixed", sst2(tmp_path, **fixed, data__padding="max_length", data__max_length=40))

    async with service() as stub:
        widths = {
            job: [shape.width for shape in (await describe(stub, job, 1, 1))[0].replicas[0].microbatches]
            for job in ("longest", "fixed")
        }

    assert widths == {"longest": [7, 12, 32, 9], "fixed": [40] * 4}


async def test_step_of_10_rows_over_4_microbatches_has_3_3_2_2(service: Service, state: Path, rows: Path) -> None:
    changes = {"data__max_train_rows": 10, "train__global_batch_size": 10, "schedule__num_microbatches": 4}
    add_job(state, "job", sst2(rows, **changes))

    async with service() as stub:
        answers = [await read(stub, "job", step) for step in (1, 2)]

    assert [[len(answer.row_ids) for answer in step] for step in answers] == [[3, 3, 2, 2]] * 2
    assert [row for answer in answers[0] for row in answer.row_ids] != [
        row for answer in answers[1] for row in answer.row_ids
    ]


async def test_microbatches_without_rows_keep_their_place(service: Service, state: Path, rows: Path) -> None:
    changes = {"data__max_train_rows": 2, "train__global_batch_size": 2, "schedule__num_microbatches": 4}
    add_job(state, "job", sst2(rows, **changes))

    async with service() as stub:
        answers = await read(stub, "job", 1)

    assert [(answer.microbatch, len(answer.row_ids), len(answer.columns)) for answer in answers] == [
        *((0, 1, 4), (1, 1, 4), (2, 0, 0), (3, 0, 0))
    ]


@pytest.mark.parametrize(("dp", "batch", "steps"), [(3, 4, 3), (2, 4, 3), (1, 64, 1)])
async def test_evaluation_has_each_row_once_in_file_order(
    service: Service, state: Path, rows: Path, dp: int, batch: int, steps: int
) -> None:
    add_job(state, "job", sst2(rows, parallel__dp=dp, eval__batch_size=batch, schedule__num_microbatches=2))
    where = {"phase": pb.PHASE_EVALUATE, "split": "validation"}

    async with service() as stub:
        described = await describe(stub, "job", 1, 100, **where)
        seen = [
            row
            for step in range(1, steps + 1)
            for rank in range(dp)
            for answer in await read(stub, "job", step, dp_rank=rank, **where)
            for row in answer.row_ids
        ]

    assert seen == list(range(10))
    assert [step.examples for step in described] == [min(batch, 10 - batch * index) for index in range(steps)]


async def test_diagnostic_set_is_served_in_file_order_without_labels(service: Service, state: Path, rows: Path) -> None:
    (rows / "diagnostic").mkdir()
    lines = ["index\tsentence1\tsentence2", *(f"{row}\tthe plot\t{WORDS[row]}" for row in range(5))]
    (rows / "diagnostic" / "diagnostic.tsv").write_text("\n".join(lines) + "\n")
    changes = {"data__task": "ax", "predict__split": "ax", "eval__batch_size": 3, "schedule__num_microbatches": 2}
    add_job(state, "job", sst2(rows, **changes))
    where = {"phase": pb.PHASE_EVALUATE, "split": "ax"}

    async with service() as stub:
        described = await describe(stub, "job", 1, 100, **where)
        answers = [answer for step in (1, 2) for answer in await read(stub, "job", step, **where)]

    assert [step.examples for step in described] == [3, 2]
    assert [row for answer in answers for row in answer.row_ids] == list(range(5))
    assert {column.name for answer in answers for column in answer.columns} == set(ALL[:3])


async def test_read_step_columns_of_first_and_last_stage_are_of_the_same_rows(
    service: Service, state: Path, rows: Path
) -> None:
    add_job(state, "job", sst2(rows))

    async with service() as stub:
        whole = await read(stub, "job", 1)
        first = await read(stub, "job", 1, columns=["token_type_ids", "input_ids"])
        last = await read(stub, "job", 1, columns=["labels"])

    for everything, ids, labels in zip(whole, first, last, strict=True):
        assert everything.row_ids == ids.row_ids == labels.row_ids
        assert [column.name for column in ids.columns] == ["token_type_ids", "input_ids"]
        assert ids.columns[1] == everything.columns[0]
        assert labels.columns[0] == everything.columns[3]


async def test_read_step_batch_of_512_rows_of_512_tokens_arrives(service: Service, state: Path, tmp_path: Path) -> None:
    write_sst2(tmp_path, [(f"{WORDS[index % 10]} " * 600, 0) for index in range(512)])
    open_tokenizer(None).save(tmp_path)
    changes = {"train__global_batch_size": 512, "schedule__num_microbatches": 1, "data__max_length": 512}
    add_job(state, "job", sst2(tmp_path, **changes))

    async with service() as stub:
        (answer,) = await read(stub, "job", 1, columns=ALL[:3])

    assert sum(len(column.data) for column in answer.columns) == 6_291_456
    ids, _, mask = map(values, answer.columns)
    assert mask.all()
    assert (ids[:, 1] == ids[:, 510]).all()
    assert len(set(ids[:, 1].tolist())) == 10


async def test_read_step_file_that_changed_is_read_again(service: Service, state: Path, rows: Path) -> None:
    add_job(state, "job", sst2(rows))

    async with service() as stub:
        before = await describe(stub, "job", 1, 1)
        write_sst2(rows, [("film", 1)] * 5)
        after = await describe(stub, "job", 1, 1)

    assert (before[0].examples, after[0].examples) == (11, 5)


@pytest.mark.real_glue
async def test_inspect_data_real_facts(service: Service) -> None:
    spec = {"data.task": "mrpc", "data.source": str(real_glue()), "data.tokenizer": str(minilm())}

    async with service() as stub:
        response = await stub.InspectData(pb.InspectDataRequest(spec_json=spec_json(spec)), timeout=20)

    assert [(split.name, split.rows, split.labelled, split.steps) for split in response.facts.splits] == [
        *(("train", 3667, True, 58), ("validation", 408, True, 7), ("test", 1725, False, 27))
    ]
    assert list(response.facts.labels) == ["not_equivalent", "equivalent"]
    assert (response.facts.num_labels, response.facts.vocabulary_size, response.facts.pad_token_id) == (2, 30522, 0)
    assert (response.facts.steps_per_epoch, response.facts.total_steps) == (115, 345)


async def test_describe_steps_past_the_end_are_left_out(service: Service, state: Path, rows: Path) -> None:
    add_job(state, "job", sst2(rows))

    async with service() as stub:
        found = [[step.step for step in await describe(stub, "job", first, 3)] for first in (1, 2, 4)]

    assert found == [[1, 2, 3], [2, 3], []]


async def test_read_step_counts_microbatches_and_their_time(service: Service, state: Path, rows: Path) -> None:
    registry = CollectorRegistry()
    add_job(state, "job", sst2(rows))

    async with service(registry=registry) as stub:
        await read(stub, "job", 1)
        await read(stub, "job", 2)
        await describe(stub, "job", 1, 3)

    assert registry.get_sample_value("takt_data_batches_total") == 16
    assert registry.get_sample_value("takt_data_build_seconds_count") == 16


@pytest.mark.parametrize(
    ("max_length", "expected"), [(128, [[0, 1, 2, 3, 4, 5, 6, 7]]), (512, [[0, 1], [2, 3], [4, 5], [6, 7]])]
)
async def test_read_step_small_microbatches_share_a_message_up_to_a_mebibyte(
    service: Service, state: Path, tmp_path: Path, max_length: int, expected: list[list[int]]
) -> None:
    # A row of 512 tokens takes 8 KiB in two columns, so 128 rows take a mebibyte.
    write_sst2(tmp_path, [(f"{WORDS[index % 10]} " * 600, 0) for index in range(512)])
    open_tokenizer(None).save(tmp_path)
    changes = {"train__global_batch_size": 512, "schedule__num_microbatches": 8, "data__max_length": max_length}
    add_job(state, "job", sst2(tmp_path, **changes))
    request = pb.ReadStepRequest(
        job="job", phase=pb.PHASE_TRAIN, split="train", step=1, columns=["input_ids", "attention_mask"]
    )

    async with service() as stub:
        answers = [answer async for answer in stub.ReadStep(request, timeout=20)]

    assert [[each.microbatch for each in answer.microbatches] for answer in answers] == expected


async def test_job_is_served_where_tokens_cannot_be_kept(service: Service, state: Path, rows: Path) -> None:
    add_job(state, "job", sst2(rows))
    async with service() as stub:
        expected = await read(stub, "job", 1)
    for file in (state / "cache" / "tokens").iterdir():
        file.unlink()
    (state / "cache" / "tokens").rmdir()
    (state / "cache" / "tokens").write_text("no folder")

    async with service() as stub:
        assert await read(stub, "job", 1) == expected


async def test_job_whose_text_changes_is_served_from_the_new_text(service: Service, state: Path, rows: Path) -> None:
    add_job(state, "job", sst2(rows, data__shuffle=False))
    async with service() as stub:
        before = await read(stub, "job", 1)
    write_sst2(rows, [("music", 0)] * 11)

    async with service() as stub:
        after = await read(stub, "job", 1)

    assert [values(microbatch.columns[0]).shape[1] for microbatch in before[:3]] == [11, 8, 10]
    assert {values(microbatch.columns[0]).shape[1] for microbatch in after} == {3}
