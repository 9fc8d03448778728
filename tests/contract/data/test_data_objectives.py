"""Objectives that predict tokens, over a real socket."""

from pathlib import Path
from typing import Any

import grpc
import grpc.aio
import numpy as np
import pytest
from takt.v1 import data_pb2 as pb
from takt.v1.data_pb2_grpc import DataServiceStub

from tests.data_calls import Service, add_job, describe, read, sst2
from tests.data_jobs import minilm, real_glue, spec_json, tokenizer_without_mask

IGNORED = -100
TRAIN = {"phase": pb.PHASE_TRAIN, "split": "train"}
Row = tuple[list[int], list[int]]


def values(column: pb.Column) -> np.ndarray[Any, np.dtype[np.int64]]:
    return np.frombuffer(column.data, dtype="<i8").reshape(tuple(column.shape))


async def rows_of(stub: DataServiceStub, job: str, *, dp: int, where: dict[str, Any]) -> list[dict[int, Row]]:
    """Return ids and labels of each row of each step, padding cut off; check what the steps were described as."""
    found = []
    for step in await describe(stub, job, 1, 100, **where):
        rows: dict[int, Row] = {}
        for rank in range(dp):
            for answer in await read(stub, job, step.step, dp_rank=rank, **where):
                for at, row in enumerate(answer.row_ids):
                    ids, _, mask, labels = (values(column)[at] for column in answer.columns)
                    assert (labels[mask == 0] == IGNORED).all()
                    rows[row] = (ids[mask == 1].tolist(), labels[mask == 1].tolist())
        counted = sum(label != IGNORED for _, labels in rows.values() for label in labels)
        assert step.denominator == counted
        assert step.examples == len(rows)
        found.append(rows)
    return found


def joined(steps: list[dict[int, Row]]) -> dict[int, Row]:
    return {row: columns for step in steps for row, columns in step.items()}


@pytest.mark.parametrize("split", ["train", "validation", "test"])
async def test_read_step_causal_lm_labels_are_the_next_ids_of_every_split(
    service: Service, state: Path, rows: Path, split: str
) -> None:
    add_job(state, "job", sst2(rows, train__objective="causal_lm", data__max_length=8, eval__batch_size=4))

    async with service() as stub:
        steps = await rows_of(stub, "job", dp=1, where={"phase": pb.PHASE_EVALUATE, "split": split})

    for ids, labels in joined(steps).values():
        assert len(ids) <= 8
        assert labels == [*ids[1:], IGNORED]
    assert len(joined(steps)) == {"train": 11, "validation": 10, "test": 1}[split]


async def test_read_step_masked_lm_is_one_function_of_seed_pass_and_row(
    service: Service, state: Path, rows: Path
) -> None:
    changes = {"train__objective": "masked_lm", "train__mlm_probability": 0.5, "train__global_batch_size": 4}
    other = {
        **changes,
        "parallel__dp": 2,
        "schedule__num_microbatches": 3,
        "train__global_batch_size": 6,
        "data__padding": "max_length",
        "eval__batch_size": 3,
    }
    add_job(state, "plain", sst2(rows, **changes))
    add_job(state, "spread", sst2(rows, **other))
    add_job(state, "in_order", sst2(rows, **changes, data__shuffle=False))
    add_job(state, "seed", sst2(rows, **changes, train__seed=43))
    evaluate = {"phase": pb.PHASE_EVALUATE, "split": "validation"}
    layouts = {"plain": (1, 3), "spread": (2, 2), "in_order": (1, 3), "seed": (1, 3)}

    trained, evaluated = {}, {}
    async with service() as stub:
        for job, (dp, steps_per_epoch) in layouts.items():
            steps = await rows_of(stub, job, dp=dp, where=TRAIN)
            trained[job] = [
                joined(steps[first : first + steps_per_epoch]) for first in range(0, len(steps), steps_per_epoch)
            ]
            evaluated[job] = joined(await rows_of(stub, job, dp=dp, where=evaluate))

    assert trained["plain"] == trained["spread"] == trained["in_order"]
    assert evaluated["plain"] == evaluated["spread"] == evaluated["in_order"]
    assert [len(epoch) for epoch in trained["plain"]] == [11, 11, 11]
    first, second, third = trained["plain"]
    assert first != second != third != first
    # The validation split holds the first rows of the training split, and another pass hides others.
    assert evaluated["plain"] != {row: first[row] for row in range(10)}
    assert trained["seed"][0] != first


async def test_inspect_data_of_tokens_has_no_labels_and_every_split_is_labelled(service: Service) -> None:
    async with service() as stub:
        request = pb.InspectDataRequest(spec_json=spec_json({"train.objective": "causal_lm"}))
        facts = (await stub.InspectData(request, timeout=20)).facts

    assert (list(facts.labels), facts.num_labels) == ([], 0)
    assert [(split.name, split.labelled) for split in facts.splits] == [
        *(("train", True), ("validation", True), ("test", True))
    ]


async def test_masked_lm_without_a_mask_token_is_refused_by_every_call(
    service: Service, state: Path, tmp_path: Path
) -> None:
    changes = {"data.tokenizer": str(tokenizer_without_mask(tmp_path)), "train.objective": "masked_lm"}
    add_job(state, "job", changes)
    add_job(state, "other", {**changes, "train.objective": "classification", "data.max_train_rows": 100})

    async with service() as stub:
        await describe(stub, "other", 1, 1)
        for call in (
            stub.InspectData(pb.InspectDataRequest(spec_json=spec_json(changes)), timeout=20),
            describe(stub, "job", 1, 1),
            read(stub, "job", 1),
        ):
            with pytest.raises(grpc.aio.AioRpcError, match="names no mask token") as raised:
                await call
            assert raised.value.code() is grpc.StatusCode.INVALID_ARGUMENT


async def test_jobs_of_two_objectives_share_tokens_and_keep_their_own_columns(
    service: Service, state: Path, rows: Path
) -> None:
    for objective in ("classification", "masked_lm", "causal_lm"):
        add_job(state, objective, sst2(rows, train__objective=objective, data__shuffle=False))

    async with service() as stub:
        answers = {
            objective: [values(column) for column in (await read(stub, objective, 1))[0].columns]
            for objective in ("masked_lm", "classification", "causal_lm")
        }

    ids, *_, labels = answers["classification"]
    assert labels.tolist() == [1, 1]
    assert answers["causal_lm"][0].tolist() == ids.tolist()
    hidden_ids, *_, hidden_labels = answers["masked_lm"]
    chosen = hidden_labels != IGNORED
    assert chosen.sum(axis=1).tolist() == [1, 1]
    assert (hidden_labels[chosen] == ids[chosen]).all()
    assert (hidden_ids[~chosen] == ids[~chosen]).all()


@pytest.mark.real_glue
async def test_read_step_masked_lm_of_real_pairs_hides_no_frame(service: Service, state: Path) -> None:
    changes = {"data.task": "mrpc", "data.source": str(real_glue()), "data.tokenizer": str(minilm())}
    add_job(state, "job", {**changes, "train.objective": "masked_lm", "eval.batch_size": 408})

    async with service() as stub:
        (rows,) = await rows_of(stub, "job", dp=1, where={"phase": pb.PHASE_EVALUATE, "split": "validation"})

    for ids, labels in rows.values():
        count = len(ids) - 3  # [CLS] and two [SEP]
        chosen = [label for label in labels if label != IGNORED]
        assert len(chosen) == max(1, round(0.15 * count))
        assert not {101, 102} & set(chosen)
        assert (ids[0], ids[-1], ids.count(102)) == (101, 102, 2)
    assert len(rows) == 408
