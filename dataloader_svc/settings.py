"""The few keys of a job's spec that decide what its data are."""

import enum
import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

from dataloader_svc.errors import SpecError
from dataloader_svc.sharding import Grouping, Sharding, in_order, microbatches_for_size
from dataloader_svc.splits import SplitName
from dataloader_svc.tasks import Task, find_task

ValueT = TypeVar("ValueT", bool, int, float, str)

ChoiceT = TypeVar("ChoiceT", bound=enum.StrEnum)

HUB_REPOSITORY = "nyu-mll/glue"
"""What ``data.source: hub`` means."""


class Padding(enum.StrEnum):
    """What the rows of a microbatch are padded to."""

    LONGEST = "longest"
    MAX_LENGTH = "max_length"


class MalformedLines(enum.StrEnum):
    """What is done with lines of a file that do not fit it."""

    REFUSE = "refuse"
    SKIP = "skip"


class Microbatching(enum.StrEnum):
    """How the rows of a training step fall into microbatches."""

    IN_ORDER = "in_order"
    LENGTH_BALANCED = "length_balanced"


class Objective(enum.StrEnum):
    """What the loss is taken of."""

    CLASSIFICATION = "classification"
    MASKED_LM = "masked_lm"
    CAUSAL_LM = "causal_lm"

    @property
    def is_token_level(self) -> bool:
        """Whether tokens are predicted, so that the text is its own label."""
        return self is not Objective.CLASSIFICATION


@dataclass(frozen=True, slots=True, kw_only=True)
class DataSettings:
    """What a job's data depend on; two jobs with equal settings get the same microbatches."""

    task: Task
    model: Path | None
    """Folder of the pretrained model, whose label ids are served; None for a new one."""
    malformed_lines: MalformedLines
    source: Path | None
    """Folder in the GLUE layout; None for the built-in task and for one from the Hub."""
    repository: str | None
    """The data set's id on the Hub; None for the built-in task and for one from a folder."""
    tokenizer: Path | None
    """Folder of the tokenizer; None for the built-in one."""
    max_length: int
    """Positions that a row is cut to, special tokens included."""
    padding: Padding
    microbatching: Microbatching
    shuffle: bool
    drop_last: bool
    max_train_rows: int | None
    """Rows of the training split that are used; None for all."""
    record_rows: bool
    """Whether step descriptions name the rows."""
    objective: Objective
    mlm_probability: float
    """Share of a row's tokens that masked_lm hides, then in (0, 1]."""
    seed: int
    num_replicas: int
    global_batch_size: int
    """Rows of one training step over all replicas."""
    num_slices: int
    """Accumulation slices of one training step."""
    num_microbatches: int
    """Microbatches of one replica in one slice."""
    epochs: int | None
    max_steps: int | None
    """Training steps; None where ``epochs`` decides."""
    evaluation_batch_size: int
    """Rows of one evaluation step over all replicas."""
    predicted_split: SplitName | None
    """The only split that is read, forward only; None where the job trains."""

    def training(self, num_rows: int, *, grouping: Grouping = in_order) -> Sharding:
        """Return how a training split of ``num_rows`` rows falls into steps, and each of them by ``grouping``."""
        return Sharding(
            num_rows=num_rows,
            batch_size=self.global_batch_size,
            num_replicas=self.num_replicas,
            num_microbatches=self.num_slices * self.num_microbatches,
            seed=self.seed if self.shuffle else None,
            drop_last=self.drop_last,
            grouping=grouping,
        )

    def evaluation(self, num_rows: int) -> Sharding:
        """Return how a split of ``num_rows`` rows falls into forward-only steps: file order, each row once."""
        return Sharding(
            num_rows=num_rows,
            batch_size=self.evaluation_batch_size,
            num_replicas=self.num_replicas,
            num_microbatches=self.num_microbatches,
            seed=None,
            drop_last=False,
        )

    def training_steps(self, num_rows: int) -> int:
        """Return the number of training steps of the whole job."""
        if self.max_steps is not None:
            return self.max_steps
        return (self.epochs or 0) * self.training(num_rows).steps_per_epoch


def parse_settings(spec_json: str) -> DataSettings:
    """Read the settings out of a resolved job spec.

    Raises:
        SpecError: the text is no spec, or a value in it cannot be served.
    """
    spec = _Spec(spec_json)
    task = find_task(spec.get("data.task", str))
    objective = _choice("train.objective", spec.get("train.objective", str), Objective)
    mlm_probability = spec.get("train.mlm_probability", float)
    if objective is Objective.MASKED_LM and not 0 < mlm_probability <= 1:
        raise SpecError(f"train.mlm_probability is {mlm_probability}, need above 0 and at most 1 for masked_lm")
    num_replicas = spec.get("parallel.dp", int)
    global_batch_size = spec.get("train.global_batch_size", int)
    num_slices = spec.get("train.gradient_accumulation_steps", int)
    num_microbatches = spec.find("schedule.num_microbatches", int)
    if num_microbatches is None:
        num_microbatches = microbatches_for_size(
            global_batch_size=global_batch_size,
            num_replicas=num_replicas,
            num_slices=num_slices,
            microbatch_size=spec.get("schedule.microbatch_size", int),
        )
    source = None if task.layout is None else _source(spec.get("data.source", str))
    predicted = spec.find("predict.split", str)
    epochs, max_steps = spec.find("train.epochs", int), spec.find("train.max_steps", int)
    if epochs is None and max_steps is None:
        raise SpecError("the spec has neither train.epochs nor train.max_steps; one of them is needed")
    return DataSettings(
        task=task,
        model=_absolute("model.pretrained", model) if (model := spec.find("model.pretrained", str)) else None,
        malformed_lines=_choice("data.malformed_lines", spec.get("data.malformed_lines", str), MalformedLines),
        source=source,
        repository=HUB_REPOSITORY if task.layout is not None and source is None else None,
        tokenizer=_tokenizer(task, spec.find("data.tokenizer", str)),
        max_length=spec.get("data.max_length", int),
        padding=_choice("data.padding", spec.get("data.padding", str), Padding),
        microbatching=_choice("data.microbatching", spec.get("data.microbatching", str), Microbatching),
        shuffle=spec.get("data.shuffle", bool),
        drop_last=spec.get("data.drop_last", bool),
        max_train_rows=spec.find("data.max_train_rows", int),
        record_rows=spec.get("data.record_rows", bool),
        objective=objective,
        mlm_probability=mlm_probability,
        seed=spec.get("train.seed", int, least=0),
        num_replicas=num_replicas,
        global_batch_size=global_batch_size,
        num_slices=num_slices,
        num_microbatches=num_microbatches,
        epochs=epochs,
        max_steps=max_steps,
        evaluation_batch_size=spec.get("eval.batch_size", int),
        predicted_split=_choice("predict.split", predicted, SplitName) if predicted is not None else None,
    )


class _Spec:
    """A resolved spec, read by dotted keys."""

    def __init__(self, text: str) -> None:
        try:
            self._root: Any = json.loads(text)
        except (ValueError, RecursionError) as error:
            raise SpecError(f"the job spec is not JSON: {error}") from error

    def get(self, key: str, kind: type[ValueT], *, least: int = 1) -> ValueT:
        """Return the value of a key that must be there."""
        value = self.find(key, kind, least=least)
        if value is None:
            raise SpecError(f"the job spec has no value for {key}; the data service needs the resolved spec")
        return value

    def find(self, key: str, kind: type[ValueT], *, least: int = 1) -> ValueT | None:
        """Return the value of a key, None where it is absent or null; integers are at least ``least``."""
        value = self._root
        for name in key.split("."):
            if value is None:
                return None
            if not isinstance(value, dict):
                raise SpecError(f"the job spec has {value!r} where the section of {key} should be")
            value = value.get(name)
        if value is None:
            return None
        if type(value) is not kind:  # bool is an int for isinstance
            raise SpecError(f"{key} is {value!r}, need {kind.__name__}")
        if type(value) is int and value < least:
            raise SpecError(f"{key} is {value}, need at least {least}")
        return value


def _source(source: str) -> Path | None:
    return None if source == "hub" else _absolute("data.source", source)


def _tokenizer(task: Task, tokenizer: str | None) -> Path | None:
    if tokenizer is not None:
        return _absolute("data.tokenizer", tokenizer)
    if task.layout is not None:
        raise SpecError(f"task {task.name} needs data.tokenizer, a folder with a tokenizer.json; only demo has its own")
    return None


def _absolute(key: str, value: str) -> Path:
    path = Path(value)
    if not path.is_absolute():
        raise SpecError(f"{key} is {value!r}, need the absolute path of a local folder; Hub ids are not built")
    return path


def _choice(key: str, value: str, choices: type[ChoiceT]) -> ChoiceT:
    try:
        return choices(value)
    except ValueError:
        raise SpecError(f"{key} is {value!r}, need one of {', '.join(choices)}") from None
