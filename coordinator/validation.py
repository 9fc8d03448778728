"""Whether a job fits its model and its data."""

import re
from collections.abc import Iterator

from coordinator.choices import PartitionMethod
from coordinator.facts import DataFacts, ModelFacts
from coordinator.problem import Problem
from coordinator.rules import microbatches_of
from coordinator.spec import JobSpec
from coordinator.stages import stages_of

_UNNAMED = re.compile(r"LABEL_\d+")
"""Labels of a model whose maker named none."""


def check_facts(spec: JobSpec, model: ModelFacts, data: DataFacts) -> tuple[Problem, ...]:
    """Return all problems of ``spec`` that only its model and its data show; none where it can run."""
    if spec.predict.split is not None:
        return (*_model_problems(spec, model, data), *_prediction_problems(model))
    return (*_model_problems(spec, model, data), *_training_problems(spec, data), *_evaluation_problems(spec, data))


def _prediction_problems(model: ModelFacts) -> Iterator[Problem]:
    if not model.has_head:
        yield Problem(
            "model.pretrained",
            "has no head for classification, and predict.split needs one that has learnt the task; "
            "needs the folder of a trained model, such as takt export writes",
        )


def _model_problems(spec: JobSpec, model: ModelFacts, data: DataFacts) -> Iterator[Problem]:
    pp, chunks, layers = spec.parallel.pp, spec.schedule.num_chunks, model.num_layers
    if pp > layers:
        yield Problem(
            "parallel.pp",
            f"is {pp}, but the model has {layers} layers and every stage needs one; needs at most {layers}",
        )
    elif pp * chunks > layers:
        fewer = f", or parallel.pp of at most {layers // chunks}" if layers >= chunks else ""
        yield Problem(
            "schedule.num_chunks",
            f"is {chunks}, which makes {pp * chunks} stages on {pp} workers, but the model has {layers} layers and "
            f"every stage needs one; needs at most {layers // pp}{fewer}",
        )
    elif spec.parallel.layers_per_stage is not None and sum(spec.parallel.layers_per_stage) != layers:
        yield Problem(
            "parallel.layers_per_stage",
            f"adds up to {sum(spec.parallel.layers_per_stage)} layers, but the model has {layers}; "
            f"needs numbers that add up to {layers}",
        )
    else:
        yield from _recompute_problems(spec, model)
    if spec.train.frozen_layers is not None and spec.train.frozen_layers > layers:
        yield Problem(
            "train.frozen_layers",
            f"is {spec.train.frozen_layers}, but the model has {layers} layers; needs at most {layers}",
        )
    if spec.data.max_length > model.max_positions:
        yield Problem(
            "data.max_length",
            f"is {spec.data.max_length}, but the model has {model.max_positions} positions; "
            f"needs at most {model.max_positions}",
        )
    if 0 < model.vocabulary_size < data.vocabulary_size:
        larger = "a larger model.config.vocab_size"
        if spec.model.config is None:
            larger = "a model that was saved after resize_token_embeddings"
        yield Problem(
            "data.tokenizer",
            f"has {data.vocabulary_size} entries, but the model's embedding table has {model.vocabulary_size} rows; "
            f"needs the tokenizer of the model, or {larger}",
        )
    pad = (spec.model.config or {}).get("pad_token_id")
    if model.vocabulary_size == 0 and isinstance(pad, int) and not 0 <= pad < data.vocabulary_size:
        yield Problem(
            "model.config",
            f"has pad_token_id {pad}, but the tokenizer has {data.vocabulary_size} entries, from 0; "
            "leave it out, and the tokenizer's is taken",
        )
    if model.pad_token_ids and data.pad_token_id not in model.pad_token_ids:
        fix = "needs the tokenizer of the model"
        if spec.model.config is not None:
            fix = f"needs model.config.pad_token_id: {data.pad_token_id}, or the tokenizer of the model"
        yield Problem(
            "data.tokenizer",
            f"pads with id {data.pad_token_id}, but the positions of the model count from pad id "
            f"{' or '.join(map(str, model.pad_token_ids))}; {fix}",
        )
    is_classification = not spec.train.objective.is_token_level
    if is_classification and model.labels:
        yield from _head_problems(spec, model, data)


def _head_problems(spec: JobSpec, model: ModelFacts, data: DataFacts) -> Iterator[Problem]:
    """Yield how the labels of a model's head are not those of the data, whose order follows the model's if they are."""
    if len(model.labels) != data.num_labels:
        yield Problem(
            "model",
            f"has a head for {len(model.labels)} labels ({', '.join(model.labels)}), "
            f"but task {spec.data.task} needs {data.num_labels} outputs; needs a model with as many or without a head",
        )
    elif data.labels and not all(_UNNAMED.fullmatch(label) for label in model.labels):
        plain = [[_plain(label) for label in labels] for labels in (model.labels, data.labels)]
        if plain[0] != plain[1]:
            yield Problem(
                "model",
                f"has a head for the labels {', '.join(model.labels)}, but those of task {spec.data.task} are "
                f"{', '.join(data.labels)}; needs a model with the same labels, or without a head",
            )


def _plain(label: str) -> str:
    return label.casefold().replace("-", "_").replace(" ", "_")


def _recompute_problems(spec: JobSpec, model: ModelFacts) -> Iterator[Problem]:
    """Yield the stages of a list that are said to have more layers than they get; balanced ones do all they have."""
    if not isinstance(spec.train.recompute, tuple) or spec.parallel.partition is PartitionMethod.BALANCED:
        return
    for piece, recomputed in zip(stages_of(spec, model), spec.train.recompute, strict=True):
        if recomputed > piece.num_layers:
            yield Problem(
                "train.recompute",
                f"is {recomputed} for stage {piece.stage}, which gets {piece.num_layers} of the model's "
                f"{model.num_layers} layers; needs at most {piece.num_layers} there",
            )


def _training_problems(spec: JobSpec, data: DataFacts) -> Iterator[Problem]:
    train = data.split("train")
    if train is None or not train.labelled:
        lack = "has no train split" if train is None else "has a train split without labels"
        yield Problem("data.task", f"is {spec.data.task}, which {lack}; needs labelled rows to train on")
        return
    if train.num_rows == 0:
        yield Problem("data.source", "has no row in the train split; needs rows to train on")
        return
    dp, slices = spec.parallel.dp, spec.train.gradient_accumulation_steps
    first_batch = min(train.num_rows, spec.train.global_batch_size)
    if data.steps_per_epoch == 0:
        yield Problem(
            "train.global_batch_size",
            f"is {spec.train.global_batch_size}, but the train split has {train.num_rows} rows and data.drop_last "
            "leaves the rest out; needs at most that many, or data.drop_last: false",
        )
    elif first_batch < dp * slices * microbatches_of(spec):
        largest = first_batch // (dp * slices)
        fix = f"needs at most {largest}" if largest else f"needs at least {dp * slices} rows"
        yield Problem(
            "schedule.num_microbatches",
            f"is {microbatches_of(spec)}, but the train split has only {train.num_rows} rows "
            f"for {dp} replicas x {slices} accumulation slices; {fix}",
        )


def _evaluation_problems(spec: JobSpec, data: DataFacts) -> Iterator[Problem]:
    if not spec.eval.at_end and spec.eval.every_steps is None:
        return
    if not data.evaluated_splits:
        found = any(split.name.startswith("validation") for split in data.splits)
        lack = "has no labelled rows" if found else "is not there"
        key = "eval.at_end" if spec.eval.at_end else "eval.every_steps"
        fix = "false" if spec.eval.at_end else "null"
        yield Problem(key, f"asks for an evaluation, but the validation split {lack}; provide it, or set {key}: {fix}")
