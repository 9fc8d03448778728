"""Rules that bind several keys of a job together."""

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

from pydantic import JsonValue

from coordinator.choices import Objective, PartitionMethod, ScheduleName, Task
from coordinator.costs import problem_of_text
from coordinator.problem import Problem
from coordinator.schedule.limits import Schedule, SizeError, check_size
from coordinator.sections import JobSpec

MAX_FORWARDS = 2**17
"""Most forwards that the plan of one replica's step may have; reading and proving so many takes about ten seconds."""


@dataclass(frozen=True, slots=True)
class Rule:
    """A rule over keys."""

    key: str
    """Key that a breach is told of."""
    reads: tuple[str, ...]
    """All keys that it reads; where one of them is wrong by itself the rule has nothing to say."""
    check: Callable[[JobSpec], str | None]
    """Returns what is wrong, or None."""


def problems(spec: JobSpec, *, without: frozenset[str] = frozenset()) -> Iterator[Problem]:
    """Yield the rules that ``spec`` breaks, save those that read a key (or a part of one) in ``without``."""
    for rule in RULES:
        if any(_overlap(read, key) for read in rule.reads for key in without):
            continue
        message = rule.check(spec)
        if message is not None:
            yield Problem(rule.key, message)


def _overlap(one: str, other: str) -> bool:
    return f"{one}.".startswith(f"{other}.") or f"{other}.".startswith(f"{one}.")


def microbatches_of(spec: JobSpec) -> int:
    """Return the microbatches of one replica in one accumulation slice, by whichever key says it."""
    schedule, train = spec.schedule, spec.train
    if schedule.microbatch_size is None:
        assert schedule.num_microbatches is not None  # parsing fills in the default
        return schedule.num_microbatches
    slices = spec.parallel.dp * train.gradient_accumulation_steps
    return math.ceil(train.global_batch_size / (slices * schedule.microbatch_size))


def _name(spec: JobSpec) -> str | None:
    if spec.name in (".", ".."):
        return f"is '{spec.name}', which names a folder; needs a letter or a digit"
    return None


def _one_model(spec: JobSpec) -> str | None:
    if spec.model.pretrained is not None and spec.model.config is not None:
        return "has both pretrained and config, needs one of them; set the other one to null"
    if spec.model.pretrained is None and spec.model.config is None:
        return "has neither pretrained nor config, needs one of them"
    return None


def _model_type(spec: JobSpec) -> str | None:
    if spec.model.config is None or isinstance(spec.model.config.get("model_type"), str):
        return None
    return "has no model_type, needs one as text, for instance bert"


def _finite_config(spec: JobSpec) -> str | None:
    return None if _is_finite(spec.model.config) else "has a number that is infinite or NaN, needs finite numbers"


def _is_finite(value: JsonValue) -> bool:
    match value:
        case dict():
            return all(map(_is_finite, value.values()))
        case list():
            return all(map(_is_finite, value))
        case float():
            return math.isfinite(value)
        case _:
            return True


def _model_folder(spec: JobSpec) -> str | None:
    return _folder(spec.model.pretrained)


def _source_folder(spec: JobSpec) -> str | None:
    if spec.data.task is Task.DEMO or spec.data.source == "hub":
        return None
    return _folder(spec.data.source)


def _tokenizer_folder(spec: JobSpec) -> str | None:
    if spec.data.tokenizer == spec.model.pretrained:
        return None  # told of the model
    return _folder(spec.data.tokenizer)


def _folder(place: str | None) -> str | None:
    if place is not None and any(ord(character) < 32 for character in place):
        return f"is {place!r}, which has a control character; needs the path of a folder"
    if place is None or place.startswith("/"):
        return None
    return f"is '{place}', which is no folder, and Hub ids are not built in this version; give the path of a folder"


def _tokenizer(spec: JobSpec) -> str | None:
    is_demo = spec.data.task is Task.DEMO
    if is_demo and spec.data.tokenizer is not None:
        return f"is '{spec.data.tokenizer}', but demo has a tokenizer of its own; leave the key out"
    if not is_demo and spec.data.tokenizer is None and spec.model.pretrained is None:
        return "is missing; a model built from model.config needs the folder of a tokenizer"
    return None


def _duration(spec: JobSpec) -> str | None:
    if spec.train.epochs is not None and spec.train.max_steps is not None:
        return (
            f"is {spec.train.max_steps}, but train.epochs is {spec.train.epochs} too, needs one of them; "
            "set the other one to null"
        )
    return None


def _microbatches_agree(spec: JobSpec) -> str | None:
    given, size = spec.schedule.num_microbatches, spec.schedule.microbatch_size
    if given is None or size is None or given == microbatches_of(spec):
        return None
    return f"is {given}, but microbatch_size {size} makes it {microbatches_of(spec)}; leave one of the two out"


def _replicas_fit(spec: JobSpec) -> str | None:
    batch, dp, slices = spec.train.global_batch_size, spec.parallel.dp, spec.train.gradient_accumulation_steps
    if batch >= dp * slices:
        return None
    return (
        f"is {batch}, less than one row for each of {dp} replicas x {slices} accumulation slices; "
        f"needs at least {dp * slices}"
    )


def _microbatches_fit(spec: JobSpec) -> str | None:
    batch, dp, slices = spec.train.global_batch_size, spec.parallel.dp, spec.train.gradient_accumulation_steps
    given, largest = spec.schedule.num_microbatches, batch // dp // slices
    if given is None or largest == 0 or given <= largest:
        return None
    return (
        f"is {given}, but a replica has only {largest} rows in an accumulation slice "
        f"(train.global_batch_size {batch} / parallel.dp {dp} / {slices} slices); needs at most {largest}"
    )


def _plan_fits(spec: JobSpec) -> str | None:
    stages = spec.parallel.pp * spec.schedule.num_chunks
    slices, num_microbatches = spec.train.gradient_accumulation_steps, microbatches_of(spec)
    forwards = stages * slices * num_microbatches
    if forwards <= MAX_FORWARDS:
        return None
    return (
        f"is {num_microbatches}, so that a step has {forwards} forwards "
        f"({stages} stages x {slices} slices x {num_microbatches}); at most {MAX_FORWARDS} are planned"
    )


def _schedule_size(option: str) -> Callable[[JobSpec], str | None]:
    """Return the check of what the schedule asks of one of its options."""

    def check(spec: JobSpec) -> str | None:
        schedule = spec.schedule
        if schedule.name in (ScheduleName.CUSTOM, ScheduleName.AUTO):
            why = "takes its order from the file" if schedule.name is ScheduleName.CUSTOM else "chooses it"
            chunks = schedule.num_chunks > 1 and schedule.name is ScheduleName.AUTO
            given = {"group_size": schedule.group_size, "warmup": schedule.warmup, "num_chunks": chunks or None}
            return None if given.get(option) is None else f"is given, but {schedule.name} {why}; leave it out"
        if schedule.name.value not in [each.value for each in Schedule]:
            return None  # told as not built
        try:
            check_size(
                schedule.name,
                num_workers=spec.parallel.pp,
                num_chunks=schedule.num_chunks,
                num_microbatches=microbatches_of(spec),
                group_size=schedule.group_size,
                warmup=schedule.warmup,
            )
        except SizeError as error:
            return str(error).removeprefix(f"{option} ") if error.option == option else None
        return None

    return check


def _plan_file(spec: JobSpec) -> str | None:
    name, file = spec.schedule.name, spec.schedule.file
    if file is None:
        return "is missing; custom needs the file of a plan as CSV" if name is ScheduleName.CUSTOM else None
    if name is not ScheduleName.CUSTOM:
        return f"is given, but schedule.name is {name} and only custom reads a plan; leave one of the two out"
    if "\n" not in file:
        # Whoever reads a job file puts the plan's text in place of its path.
        return f"is {file[:60]!r}, a path; a spec holds the text of the plan, one line a worker"
    return None


def _loss_scale(spec: JobSpec) -> str | None:
    scale = spec.train.loss_scale
    if scale.min <= scale.initial <= scale.max:
        return None
    return f"has min {scale.min:g}, initial {scale.initial:g}, max {scale.max:g}; needs min <= initial <= max"


def _recompute_list(spec: JobSpec) -> str | None:
    return _one_a_stage(spec, spec.train.recompute) if isinstance(spec.train.recompute, tuple) else None


def _layers_list(spec: JobSpec) -> str | None:
    sizes = spec.parallel.layers_per_stage
    return None if sizes is None else _one_a_stage(spec, sizes)


def _one_a_stage(spec: JobSpec, numbers: Sequence[int]) -> str | None:
    pp, chunks = spec.parallel.pp, spec.schedule.num_chunks
    if len(numbers) == pp * chunks:
        return None
    stages = f"{pp} stage{'' if pp == 1 else 's'}"
    if chunks > 1:
        stages = f"{pp * chunks} stages ({pp} worker{'' if pp == 1 else 's'} x {chunks} chunks)"
    return f"has {len(numbers)} number{'' if len(numbers) == 1 else 's'} for {stages}; give one number a stage"


def _one_partition(spec: JobSpec) -> str | None:
    if spec.parallel.layers_per_stage is None or spec.parallel.partition is PartitionMethod.EVEN:
        return None
    return f"is given, but parallel.partition is {spec.parallel.partition}, which finds them; leave one of the two out"


def _masked_share(spec: JobSpec) -> str | None:
    if spec.train.objective is not Objective.MASKED_LM or spec.train.mlm_probability > 0:
        return None
    return "is 0, but masked_lm learns from masked tokens only; needs a number of more than 0"


def _predicts_with_a_model(spec: JobSpec) -> str | None:
    if spec.predict.split is None:
        return None
    if spec.model.pretrained is None:
        return f"is {spec.predict.split}, but a model from scratch has learnt nothing; needs model.pretrained"
    if spec.train.objective.is_token_level:
        return (
            f"is {spec.predict.split}, but train.objective is {spec.train.objective}; predictions are those of "
            "classification"
        )
    return None


_BATCH = ("train.global_batch_size", "parallel.dp", "train.gradient_accumulation_steps")
_COUNT = ("schedule.num_microbatches", "schedule.microbatch_size")
_CHUNKS = ("parallel.pp", "schedule.num_chunks")
_SHAPE = (*_COUNT, *_BATCH, *_CHUNKS, "schedule.name", "schedule.group_size", "schedule.warmup")

RULES: tuple[Rule, ...] = (
    Rule("name", ("name",), _name),
    Rule("model", ("model.pretrained", "model.config"), _one_model),
    Rule("model.config", ("model.config",), _model_type),
    Rule("model.config", ("model.config",), _finite_config),
    Rule("model.pretrained", ("model.pretrained",), _model_folder),
    Rule("data.source", ("data.source", "data.task"), _source_folder),
    Rule("data.tokenizer", ("data.tokenizer", "model.pretrained"), _tokenizer_folder),
    Rule("data.tokenizer", ("data.tokenizer", "data.task", "model.pretrained"), _tokenizer),
    Rule("parallel.layers_per_stage", ("parallel.layers_per_stage", *_CHUNKS), _layers_list),
    Rule("parallel.layers_per_stage", ("parallel.layers_per_stage", "parallel.partition"), _one_partition),
    Rule("parallel.costs", ("parallel.costs",), lambda spec: problem_of_text(spec.parallel.costs)),
    Rule("train.max_steps", ("train.epochs", "train.max_steps"), _duration),
    Rule("train.global_batch_size", _BATCH, _replicas_fit),
    Rule("schedule.num_microbatches", (*_COUNT, *_BATCH), _microbatches_agree),
    Rule("schedule.num_microbatches", (*_COUNT, *_BATCH), _microbatches_fit),
    Rule("schedule.num_microbatches", (*_COUNT, *_BATCH, *_CHUNKS), _plan_fits),
    *(
        Rule(f"schedule.{option}", _SHAPE, _schedule_size(option))
        for option in ("num_chunks", "num_microbatches", "group_size", "warmup")
    ),
    Rule("schedule.file", ("schedule.name", "schedule.file"), _plan_file),
    Rule("train.loss_scale", ("train.loss_scale",), _loss_scale),
    Rule("train.recompute", ("train.recompute", *_CHUNKS), _recompute_list),
    Rule("predict.split", ("predict.split", "model.pretrained", "train.objective"), _predicts_with_a_model),
    Rule("train.mlm_probability", ("train.mlm_probability", "train.objective"), _masked_share),
)
"""All rules, in the order of the job file."""
