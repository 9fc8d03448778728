"""Cases of rows and labels, from the lines of GLUE-shaped files to gradients, against transformers on the same text."""

import itertools
import socket
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, NoReturn

import grpc
import pytest
import torch
from safetensors.torch import load_file, save_file
from takt.rpc.client import channel
from takt.v1 import data_pb2 as pb
from takt.v1.data_pb2_grpc import DataServiceStub
from transformers import AutoModelForSequenceClassification, AutoTokenizer, PreTrainedTokenizerFast

from coordinator.choices import Objective, Task
from coordinator.evaluation import Evaluation
from coordinator.scoring import Row, Scoring
from stage_worker.engine.commands import Phase
from stage_worker.engine.transport import TransferKind
from stage_worker.facts import model_facts
from tests.data_jobs import spec_json
from tests.integration.parity.models import MODELS, save_tiny_model
from tests.integration.parity.reference import Tensors, assert_close, takes_types
from tests.integration.parity.served import ServedJob, data_service
from tests.integration.services.job_files import WORDS, save_tiny_bert, write_rows, write_sst2

pytestmark = pytest.mark.timeout(120)

SEP = 3
"""Id of [SEP] in the tokenizer of ``save_tiny_bert``."""


def words(count: int, *, first: int) -> str:
    """Return a text of that many words, and so of two tokens more."""
    return " ".join(WORDS[(first + 7 * place) % len(WORDS)] for place in range(count))


def data(task: str, folder: Path, **changes: Any) -> dict[str, Any]:
    """Return the data section of a job whose tokenizer and GLUE folder are ``folder``."""
    common = {"task": task, "source": str(folder / "glue"), "tokenizer": str(folder), "max_length": 32}
    return {**common, "shuffle": False, **changes}


def whole(model: Path, texts: Sequence[tuple[str, ...]], labels: Sequence[int]) -> tuple[list[float], Tensors]:
    """Return the loss of each row and the gradient of their mean, of transformers' model in one batch."""
    tokenizer = AutoTokenizer.from_pretrained(model)
    reference = AutoModelForSequenceClassification.from_pretrained(model)
    batch = tokenizer(
        *map(list, zip(*texts, strict=True)),
        truncation=True,
        max_length=32,
        padding=len(texts) > 1,
        return_tensors="pt",
        return_token_type_ids=takes_types(reference),
    )
    logits = reference(**batch).logits
    losses = torch.nn.functional.cross_entropy(logits, torch.tensor(labels), reduction="none")
    losses.mean().backward()
    gradients = {name: p.grad for name, p in reference.named_parameters() if p.grad is not None}
    return losses.tolist(), gradients


def test_h02_scores_arrive_as_float32_and_a_head_of_zeros_has_their_mean_square(tmp_path: Path) -> None:
    scores = [2.5, 3.8, 0.0, 5.0]
    model = save_tiny_bert(tmp_path, num_labels=1)
    weights = load_file(model / "model.safetensors")
    for name in ("classifier.weight", "classifier.bias"):
        weights[name].zero_()
    save_file(weights, model / "model.safetensors", metadata={"format": "pt"})
    lines = [(words(3 + row, first=row), words(2, first=5), score) for row, score in enumerate(scores)]
    write_rows(tmp_path / "glue/STS-B/train.tsv", ("sentence1", "sentence2", "score"), lines)
    job = ServedJob(tmp_path / "state", "job", model, data("stsb", tmp_path), num_rows=4, pp=2, num_microbatches=1)

    _, last = job.run()

    (labels,) = [rows.labels for rows in last.taken.values()]
    assert labels is not None
    assert labels.dtype is torch.float32
    assert labels.tolist() == torch.tensor(scores).tolist()
    assert sum(last.steps[0].loss_sums) / 4 == pytest.approx(11.4225, abs=1e-4)


def test_h09_roberta_of_one_token_type_trains_on_pairs_like_one_process(tmp_path: Path) -> None:
    """The tokenizer marks second sentences with ones, which would be no row of the model's table."""
    save_tiny_bert(tmp_path)
    save_tiny_model(tmp_path, MODELS["roberta"].config())
    pairs = [(words(1 + row % 5, first=row), words(2 + row % 7, first=row + 3)) for row in range(8)]
    labels = [0, 1, 1, 0, 1, 0, 0, 1]
    lines = [(label, 1, 2, *pair) for pair, label in zip(pairs, labels, strict=True)]
    write_rows(tmp_path / "glue/MRPC/train.tsv", ("Quality", "#1 ID", "#2 ID", "#1 String", "#2 String"), lines)
    marked = AutoTokenizer.from_pretrained(tmp_path)(*pairs[0], return_token_type_ids=True)
    assert marked["token_type_ids"][-1] == 1
    job = ServedJob(tmp_path / "state", "job", tmp_path, data("mrpc", tmp_path), num_rows=8, pp=2, num_microbatches=2)

    first, last = job.run()

    assert {rows.token_type_ids_BL for rows in first.taken.values()} == {None}
    losses, gradients = whole(tmp_path, pairs, labels)
    assert sum(last.steps[0].loss_sums) == pytest.approx(sum(losses), abs=1e-6 * 8)
    assert_close(first.gradients | last.gradients, gradients, limit=1e-6)


def test_h11_gpt2_without_a_pad_token_is_asked_for_one_and_trains_like_rows_alone(tmp_path: Path) -> None:
    save_tiny_bert(tmp_path)
    save_tiny_model(tmp_path, {**MODELS["gpt2"].config(), "pad_token_id": None})
    texts = [(words(count, first=count),) for count in (1, 9, 4, 6)]
    labels = [0, 1, 1, 0]
    write_sst2(tmp_path / "glue", [(text, label) for (text,), label in zip(texts, labels, strict=True)])
    bare = PreTrainedTokenizerFast(tokenizer_file=str(tmp_path / "tokenizer.json"), eos_token="[SEP]")
    bare.save_pretrained(tmp_path / "bare")
    spec = {f"data.{key}": value for key, value in data("sst2", tmp_path, tokenizer=str(tmp_path / "bare")).items()}
    with data_service(tmp_path / "state") as address, channel(address) as opened, pytest.raises(grpc.RpcError) as told:
        DataServiceStub(opened).InspectData(pb.InspectDataRequest(spec_json=spec_json(spec)), timeout=20)
    assert told.value.code() is grpc.StatusCode.INVALID_ARGUMENT
    assert "names no pad token" in (told.value.details() or "")

    job = ServedJob(tmp_path / "state", "job", tmp_path, data("sst2", tmp_path), num_rows=4, pp=2)
    first, last = job.run()

    alone = [whole(tmp_path, [text], [label]) for text, label in zip(texts, labels, strict=True)]
    assert last.steps[0].loss_sums == pytest.approx([sum(losses[0] for losses, _ in alone)], abs=1e-6 * 4)
    means = {name: torch.stack([each[name] for _, each in alone]).mean(0) for name in alone[0][1]}
    assert_close(first.gradients | last.gradients, means, limit=1e-6)


def test_h13_job_whose_files_are_all_in_folders_attempts_no_connection(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Facts, rows, weights and a step. Of sockets workers use loopback ones, and all others would be the Hub's.

    That no name server is asked either is in test_comm_gloo.
    """
    attempts: list[object] = []
    look_up = socket.getaddrinfo
    connect = {name: getattr(socket.socket, name) for name in ("connect", "connect_ex")}

    def refuse(*arguments: object, **_: object) -> NoReturn:
        attempts.append(arguments)
        raise OSError("there is no network")

    def look_up_loopback(host: Any, *more: Any, **named: Any) -> Any:
        return look_up(host, *more, **named) if host == "127.0.0.1" else refuse(host)

    model = save_tiny_bert(tmp_path)
    write_sst2(tmp_path / "glue", [(words(3 + row, first=row), row % 2) for row in range(4)])
    job = ServedJob(tmp_path / "state", "job", model, data("sst2", tmp_path), num_rows=4, pp=2, num_microbatches=2)
    monkeypatch.setattr(socket, "getaddrinfo", look_up_loopback)
    for name, real in connect.items():

        def to_loopback(own: socket.socket, address: Any, real: Callable[..., Any] = real) -> Any:
            return real(own, address) if address[0] == "127.0.0.1" else refuse(address)

        monkeypatch.setattr(socket.socket, name, to_loopback)

    assert model_facts({"pretrained": str(model)}).num_layers == 4
    _, last = job.run()

    assert attempts == []
    assert len(last.steps) == 1


def test_h17_microbatches_of_widths_7_12_32_9_train_like_one_batch_and_send_their_own_bytes(tmp_path: Path) -> None:
    """Also H07 (a): the third row has 100 words, and is cut to 32 ids of which the last one is [SEP]."""
    model = save_tiny_bert(tmp_path)
    texts = [(words(count, first=count),) for count in (5, 10, 100, 7)]
    labels = [1, 0, 1, 1]
    write_sst2(tmp_path / "glue", [(text, label) for (text,), label in zip(texts, labels, strict=True)])
    job = ServedJob(tmp_path / "state", "job", model, data("sst2", tmp_path), num_rows=4, pp=2, num_microbatches=4)

    first, last = job.run()

    widths = [rows.input_ids_BL.shape[1] for rows in first.taken.values() if rows.input_ids_BL is not None]
    assert widths == [7, 12, 32, 9]
    long_row = first.taken[1, 2].input_ids_BL
    assert long_row is not None
    assert (long_row[0, -1].item(), long_row[0].tolist().count(SEP)) == (SEP, 1)
    losses, gradients = whole(model, texts, labels)
    assert last.steps[0].loss_sums == pytest.approx(losses, abs=1e-6)
    assert_close(first.gradients | last.gradients, gradients, limit=1e-6)
    hidden_bytes = 16 * 4
    for worker, kind in ((first, TransferKind.ACTIVATION), (last, TransferKind.GRADIENT)):
        assert worker.sent == {(kind, 1, m): width * hidden_bytes for m, width in enumerate(widths)}


def test_h35_loss_of_a_microbatch_is_of_the_rows_that_went_in_at_the_other_end(tmp_path: Path) -> None:
    """Twenty rows in two epochs of their own orders; a row's label is whether its first word is an even one."""
    model = save_tiny_bert(tmp_path)
    texts = [(words(1 + 3 * row % 11, first=row),) for row in range(20)]
    labels = [WORDS.index(text.split()[0]) % 2 for (text,) in texts]
    write_sst2(tmp_path / "glue", [(text, label) for (text,), label in zip(texts, labels, strict=True)])
    shuffled = data("sst2", tmp_path, shuffle=True)
    job = ServedJob(tmp_path / "state", "job", model, shuffled, num_rows=8, pp=4, num_microbatches=4)

    first, *_, last = job.run(num_steps=6)

    assert list(first.taken) == list(last.taken) == list(itertools.product(range(1, 7), range(4)))
    losses, _ = whole(model, texts, labels)
    orders = []
    for place, rows in first.taken.items():
        given = last.taken[place]
        assert rows.row_ids == given.row_ids
        orders.append(rows.row_ids)
        assert given.labels is not None
        assert rows.input_ids_BL is not None
        # [PAD], [UNK], [CLS], [SEP] and [MASK] come before the words.
        assert given.labels.tolist() == [(ids[1] - 5) % 2 for ids in rows.input_ids_BL.tolist()]
    told = [loss for step in last.steps for loss in step.loss_sums]
    assert told == pytest.approx([sum(losses[row] for row in rows) for rows in orders], abs=2e-6)
    epochs = [[row for rows in orders[start : start + 12] for row in rows] for start in (0, 12)]
    assert sorted(epochs[0]) == sorted(epochs[1]) == list(range(20))
    assert epochs[0] != epochs[1]


@pytest.mark.parametrize(("num_rows", "dp"), [(10, 3), (9, 2)])
def test_h19_each_row_is_predicted_once_whatever_the_replicas(num_rows: int, dp: int, *, tmp_path: Path) -> None:
    model = save_tiny_bert(tmp_path)
    texts = [words(1 + 2 * row % 7, first=row) for row in range(num_rows)]
    tokenizer = AutoTokenizer.from_pretrained(model)
    reference = AutoModelForSequenceClassification.from_pretrained(model).eval()
    with torch.no_grad():
        expected = [reference(**tokenizer(text, return_tensors="pt")).logits[0].tolist() for text in texts]
    classes = [max(range(2), key=row.__getitem__) for row in expected]
    # The first rows, which padding would repeat, are right, and so are all but two of the others.
    labels = [1 - row if index in (4, num_rows - 1) else row for index, row in enumerate(classes)]
    for split in ("train", "dev"):
        write_sst2(tmp_path / "glue", list(zip(texts, labels, strict=True)), split=split)
    job = ServedJob(tmp_path / "state", "job", model, data("sst2", tmp_path), num_rows=num_rows, dp=dp)

    workers = job.run(phase=Phase.EVALUATE, split="validation", num_steps=3)

    rows = [row for worker in workers for step in worker.steps for row in step.rows]
    assert sorted(row.row_id for row in rows) == list(range(num_rows))
    for row in rows:
        assert row.outputs == pytest.approx(expected[row.row_id], rel=1e-5, abs=1e-6)
    scoring = Scoring(task=Task.SST2, objective=Objective.CLASSIFICATION, labels=("negative", "positive"))
    evaluation = Evaluation(split="validation", num_rows=num_rows, scoring=scoring)
    evaluation.add(Row(row.row_id, row.outputs, row.label) for row in rows)
    record = evaluation.record(step=1)
    assert (record.examples, record.metrics) == (num_rows, (("accuracy", (num_rows - 2) / num_rows),))
