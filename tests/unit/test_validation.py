"""Whether a job fits its model and its data (cases H07, H63, H66)."""

from dataclasses import replace

import pytest

from coordinator.facts import DataFacts, ModelFacts, Split
from coordinator.spec import JobSpec, parse_spec
from coordinator.validation import check_facts

MODEL = ModelFacts(
    model_type="bert",
    num_layers=4,
    hidden_size=16,
    max_positions=32,
    vocabulary_size=96,
    token_types=2,
    labels=(),
)
TRAIN = Split(name="train", num_rows=100, labelled=True, num_steps=2)
VALIDATION = Split(name="validation", num_rows=20, labelled=True, num_steps=1)
DATA = DataFacts(
    splits=(TRAIN, VALIDATION, Split(name="test", num_rows=9, labelled=False, num_steps=1)),
    labels=("no", "yes"),
    num_labels=2,
    vocabulary_size=96,
    pad_token_id=0,
    steps_per_epoch=4,
    total_steps=12,
)


def job(*, data: dict[str, object] | None = None, **sections: dict[str, object]) -> JobSpec:
    rows = {"task": "demo", "max_length": 32, **(data or {})}
    document = {"name": "a", "model": {"config": {"model_type": "bert"}}, "data": rows}
    return parse_spec(document | sections)


def problems(spec: JobSpec, *, model: ModelFacts = MODEL, data: DataFacts = DATA) -> list[str]:
    return [str(problem) for problem in check_facts(spec, model, data)]


@pytest.mark.parametrize("pp", [1, 2, 3, 4])
@pytest.mark.parametrize("num_microbatches", [1, 2, 3, 8])
def test_job_that_fits_has_no_problem_even_with_fewer_microbatches_than_stages(pp: int, num_microbatches: int) -> None:
    assert problems(job(parallel={"pp": pp}, schedule={"num_microbatches": num_microbatches})) == []


def test_job_with_more_stages_than_layers_is_refused() -> None:
    assert problems(job(parallel={"pp": 5})) == [
        "parallel.pp: is 5, but the model has 4 layers and every stage needs one; needs at most 4"
    ]


@pytest.mark.parametrize("pp", [1, 2, 4])
def test_job_whose_chunks_have_a_layer_each_has_no_problem(pp: int) -> None:
    schedule = {"name": "looped_bfs", "num_chunks": 4 // pp, "num_microbatches": 2}
    assert problems(job(parallel={"pp": pp}, schedule=schedule)) == []


@pytest.mark.parametrize(
    ("num_chunks", "fix"),
    [(3, "needs at most 2, or parallel.pp of at most 1"), (5, "needs at most 2")],
)
def test_job_with_more_chunks_than_layers_is_refused_with_both_numbers(num_chunks: int, fix: str) -> None:
    schedule = {"name": "looped_bfs", "num_chunks": num_chunks, "num_microbatches": 2}
    assert problems(job(parallel={"pp": 2}, schedule=schedule)) == [
        f"schedule.num_chunks: is {num_chunks}, which makes {2 * num_chunks} stages on 2 workers, but the model has "
        f"4 layers and every stage needs one; {fix}"
    ]


def test_job_of_more_workers_than_layers_is_told_of_the_workers_whatever_its_chunks() -> None:
    (problem,) = problems(job(parallel={"pp": 5}, schedule={"name": "zbv", "num_chunks": 2}))
    assert problem.startswith("parallel.pp: is 5, but the model has 4 layers")


def test_job_with_rows_longer_than_the_positions_is_refused_with_both_numbers() -> None:
    assert problems(job(data={"max_length": 64})) == [
        "data.max_length: is 64, but the model has 32 positions; needs at most 32"
    ]


def test_job_whose_tokenizer_is_larger_than_the_embedding_table_is_refused() -> None:
    (problem,) = problems(job(), data=replace(DATA, vocabulary_size=97))
    assert problem.startswith("data.tokenizer: has 97 entries, but the model's embedding table has 96 rows; needs ")


def test_job_whose_tokenizer_is_larger_than_a_stored_embedding_table_is_told_how_to_enlarge_that() -> None:
    (problem,) = problems(job(model={"pretrained": "/m"}), data=replace(DATA, vocabulary_size=97))
    assert problem.endswith("or a model that was saved after resize_token_embeddings")


def test_job_whose_model_takes_its_vocabulary_from_the_tokenizer_has_no_problem() -> None:
    assert problems(job(), model=replace(MODEL, vocabulary_size=0)) == []


def test_job_whose_model_pads_with_an_id_that_its_tokenizer_has_not_is_refused() -> None:
    model = replace(MODEL, vocabulary_size=0)
    spec = job(model={"config": {"model_type": "llama", "pad_token_id": 96}})
    assert problems(spec, model=model) == [
        "model.config: has pad_token_id 96, but the tokenizer has 96 entries, from 0; "
        "leave it out, and the tokenizer's is taken"
    ]
    assert problems(job(model={"config": {"model_type": "llama", "pad_token_id": 95}}), model=model) == []


def test_job_whose_model_counts_positions_from_another_pad_id_is_refused_with_both() -> None:
    assert problems(job(), model=replace(MODEL, pad_token_ids=(1,))) == [
        "data.tokenizer: pads with id 0, but the positions of the model count from pad id 1; "
        "needs model.config.pad_token_id: 0, or the tokenizer of the model"
    ]
    (problem,) = problems(job(model={"pretrained": "/m"}), model=replace(MODEL, pad_token_ids=(1, 2)))
    assert problem.endswith("count from pad id 1 or 2; needs the tokenizer of the model")
    assert problems(job(), model=replace(MODEL, pad_token_ids=(1, 0))) == []


def test_job_whose_model_has_a_head_for_other_labels_is_refused() -> None:
    (problem,) = problems(job(), model=replace(MODEL, labels=("a", "b", "c")))
    assert problem.startswith("model: has a head for 3 labels (a, b, c), but task demo needs 2 outputs; needs ")


def test_job_whose_model_has_a_head_for_as_many_labels_has_no_problem() -> None:
    assert problems(job(), model=replace(MODEL, labels=("LABEL_0", "LABEL_1"))) == []


@pytest.mark.parametrize("objective", ["masked_lm", "causal_lm"])
def test_job_that_predicts_tokens_takes_a_model_with_a_head_for_any_labels(objective: str) -> None:
    data = replace(DATA, labels=(), num_labels=0)
    for labels in ((), ("a", "b", "c")):
        assert problems(job(train={"objective": objective}), model=replace(MODEL, labels=labels), data=data) == []


@pytest.mark.parametrize("token_types", [0, 1])
def test_job_of_sentence_pairs_takes_a_model_that_tells_no_two_sentences_apart(token_types: int) -> None:
    pairs: dict[str, object] = {"task": "mrpc", "source": "/glue", "tokenizer": "/tokens"}
    assert problems(job(data=pairs), model=replace(MODEL, token_types=token_types)) == []


def test_job_that_freezes_more_layers_than_the_model_has_is_refused_with_both_numbers() -> None:
    assert problems(job(train={"frozen_layers": 4})) == []
    assert problems(job(train={"frozen_layers": 5})) == [
        "train.frozen_layers: is 5, but the model has 4 layers; needs at most 4"
    ]


def test_job_that_recomputes_more_layers_than_any_stage_has_recomputes_them_all() -> None:
    assert problems(job(parallel={"pp": 3}, train={"recompute": 4})) == []


def test_job_whose_list_recomputes_more_layers_than_a_stage_has_is_refused_naming_each_such_stage() -> None:
    """Four layers on three stages are 2, 1 and 1."""
    assert problems(job(parallel={"pp": 3}, train={"recompute": [2, 1, 0]})) == []
    assert problems(job(parallel={"pp": 3}, train={"recompute": [3, 1, 2]})) == [
        "train.recompute: is 3 for stage 0, which gets 2 of the model's 4 layers; needs at most 2 there",
        "train.recompute: is 2 for stage 2, which gets 1 of the model's 4 layers; needs at most 1 there",
    ]


def test_job_with_a_list_for_more_stages_than_the_model_has_layers_is_told_of_the_stages() -> None:
    (problem,) = problems(job(parallel={"pp": 5}, train={"recompute": [9, 9, 9, 9, 9]}))
    assert problem.startswith("parallel.pp: is 5, but the model has 4 layers")


def test_job_without_a_train_split_is_refused() -> None:
    assert problems(job(), data=replace(DATA, splits=(VALIDATION,))) == [
        "data.task: is demo, which has no train split; needs labelled rows to train on"
    ]


def test_job_with_an_unlabelled_train_split_is_refused() -> None:
    assert problems(job(), data=replace(DATA, splits=(replace(TRAIN, labelled=False), VALIDATION))) == [
        "data.task: is demo, which has a train split without labels; needs labelled rows to train on"
    ]


def test_job_without_train_rows_is_refused() -> None:
    data = replace(DATA, splits=(replace(TRAIN, num_rows=0), VALIDATION), steps_per_epoch=0)
    assert problems(job(), data=data) == ["data.source: has no row in the train split; needs rows to train on"]


def test_job_that_leaves_all_its_rows_out_is_refused() -> None:
    data = replace(DATA, splits=(replace(TRAIN, num_rows=31), VALIDATION), steps_per_epoch=0)
    (problem,) = problems(job(data={"drop_last": True}), data=data)
    assert problem.startswith("train.global_batch_size: is 32, but the train split has 31 rows and data.drop_last")


def test_job_with_more_microbatches_than_the_train_rows_fill_is_refused_with_the_most_that_fit() -> None:
    data = replace(DATA, splits=(replace(TRAIN, num_rows=15), VALIDATION), steps_per_epoch=1)
    assert problems(job(parallel={"dp": 2}), data=data) == [
        "schedule.num_microbatches: is 8, but the train split has only 15 rows "
        "for 2 replicas x 1 accumulation slices; needs at most 7"
    ]


def test_job_with_fewer_train_rows_than_replicas_is_refused_with_the_rows_that_it_needs() -> None:
    data = replace(DATA, splits=(replace(TRAIN, num_rows=3), VALIDATION), steps_per_epoch=1)
    (problem,) = problems(job(parallel={"dp": 4}), data=data)
    assert problem.endswith("only 3 rows for 4 replicas x 1 accumulation slices; needs at least 4 rows")


def test_job_whose_last_batch_alone_is_short_has_no_problem() -> None:
    data = replace(DATA, splits=(replace(TRAIN, num_rows=33), VALIDATION), steps_per_epoch=2)
    assert problems(job(), data=data) == []


@pytest.mark.parametrize(
    ("splits", "lack"),
    [
        ((TRAIN,), "is not there"),
        ((TRAIN, replace(VALIDATION, labelled=False)), "has no labelled rows"),
        ((TRAIN, replace(VALIDATION, num_rows=0)), "has no labelled rows"),
    ],
)
def test_job_that_evaluates_on_a_split_it_lacks_is_refused(splits: tuple[Split, ...], lack: str) -> None:
    assert problems(job(), data=replace(DATA, splits=splits)) == [
        f"eval.at_end: asks for an evaluation, but the validation split {lack}; provide it, or set eval.at_end: false"
    ]


def test_job_that_evaluates_while_training_on_a_split_it_lacks_is_refused() -> None:
    (problem,) = problems(job(eval={"at_end": False, "every_steps": 5}), data=replace(DATA, splits=(TRAIN,)))
    assert problem.endswith("provide it, or set eval.every_steps: null")


def test_job_that_never_evaluates_needs_no_validation_split() -> None:
    assert problems(job(eval={"at_end": False}), data=replace(DATA, splits=(TRAIN,))) == []


def test_job_with_several_problems_tells_them_all() -> None:
    spec = job(parallel={"pp": 5}, data={"max_length": 64})
    found = problems(spec, data=replace(DATA, splits=(), vocabulary_size=200))
    assert [problem.split(":")[0] for problem in found] == [
        "parallel.pp",
        "data.max_length",
        "data.tokenizer",
        "data.task",
        "eval.at_end",
    ]


PREDICT = {"model": {"pretrained": "/model"}, "predict": {"split": "test"}}
PREDICTED = replace(DATA, splits=(Split(name="test", num_rows=9, labelled=False, num_steps=1),), total_steps=0)


def test_h01_prediction_needs_neither_rows_to_train_on_nor_labels() -> None:
    assert problems(job(**PREDICT), model=replace(MODEL, has_head=True), data=PREDICTED) == []


def test_prediction_by_a_model_that_has_learnt_nothing_is_refused() -> None:
    (problem,) = problems(job(**PREDICT), data=PREDICTED)
    assert problem.startswith("model.pretrained: has no head for classification, and predict.split needs one")


@pytest.mark.parametrize(
    ("labels", "refused"),
    [
        (("no", "yes"), False),
        (("NO", "Yes"), False),
        (("LABEL_0", "LABEL_1"), False),
        (("yes", "no"), True),  # the data service follows the order of a model with these names: this one is another
        (("good", "bad"), True),
    ],
)
def test_h05_head_with_other_names_for_its_labels_is_refused_with_both(labels: tuple[str, ...], refused: bool) -> None:
    found = problems(job(), model=replace(MODEL, labels=labels))
    told = f"has a head for the labels {', '.join(labels)}, but those of task demo are no, yes"
    assert (bool(found), all(told in problem for problem in found)) == (refused, True)


def test_job_whose_stages_have_the_models_layers_has_no_problem() -> None:
    assert problems(job(parallel={"pp": 2, "layers_per_stage": [1, 3]})) == []


@pytest.mark.parametrize("sizes", [[1, 2], [2, 3]])
def test_job_whose_stages_have_fewer_or_more_layers_than_the_model_is_refused_with_both_sums(sizes: list[int]) -> None:
    """H63: layers neither vanish nor are made up."""
    spec = job(parallel={"pp": 2, "layers_per_stage": sizes}, train={"recompute": [9, 9]})
    assert problems(spec) == [
        f"parallel.layers_per_stage: adds up to {sum(sizes)} layers, but the model has 4; "
        "needs numbers that add up to 4"
    ]


def test_job_whose_list_recomputes_more_layers_than_its_own_sizes_have_is_refused() -> None:
    """Evenly stage 1 would have the two layers that it is to recompute."""
    assert problems(job(parallel={"pp": 2, "layers_per_stage": [3, 1]}, train={"recompute": [3, 1]})) == []
    assert problems(job(parallel={"pp": 2, "layers_per_stage": [3, 1]}, train={"recompute": [3, 2]})) == [
        "train.recompute: is 2 for stage 1, which gets 1 of the model's 4 layers; needs at most 1 there"
    ]
