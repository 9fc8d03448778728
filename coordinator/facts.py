"""Facts about a job's model and data, which other rooms find out, and how to ask their programs for them."""

import subprocess
import sys
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass

from google.protobuf import json_format
from google.protobuf.message import Message
from takt.v1 import data_pb2, workers_pb2

from coordinator.problem import Problem, SpecError
from coordinator.spec import JobSpec, to_json

TIME_LIMIT_SECONDS = 120.0
"""How long a facts program may take; its imports alone take seconds."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelFacts:
    """What there is to know of a model before a worker loads it."""

    model_type: str
    """Family, for instance bert."""
    num_layers: int
    """Layers that can be shared out over stages."""
    hidden_size: int
    """Width of the hidden state."""
    max_positions: int
    """Longest row that the model takes, in tokens."""
    vocabulary_size: int
    """Rows of the embedding table; token ids must be below it. 0 where the tokenizer decides."""
    token_types: int
    """Token types that the model knows; 0 where it takes none."""
    labels: tuple[str, ...]
    """Label names of the model folder in the order of their ids; empty where it names none."""

    @classmethod
    def of(cls, message: workers_pb2.ModelFacts) -> "ModelFacts":
        """Return the facts that ``message`` carries."""
        return cls(
            model_type=message.model_type,
            num_layers=message.num_layers,
            hidden_size=message.hidden_size,
            max_positions=message.max_positions,
            vocabulary_size=message.vocabulary_size,
            token_types=message.token_types,
            labels=tuple(message.labels),
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class Split:
    """One split of a task."""

    name: str
    """train, validation or test."""
    num_rows: int
    """Rows, after data.max_train_rows."""
    labelled: bool
    """Whether its rows have labels."""
    num_steps: int
    """Steps that a forward pass over it takes, by eval.batch_size."""


@dataclass(frozen=True, slots=True, kw_only=True)
class DataFacts:
    """What there is to know of a job's rows before a step is made of them."""

    splits: tuple[Split, ...]
    """Splits that were found, in the order train, validation, test."""
    labels: tuple[str, ...]
    """Label names in the order of their ids; empty for a regression task."""
    num_labels: int
    """Outputs that the head needs."""
    vocabulary_size: int
    """Entries of the tokenizer's vocabulary; ids are below it."""
    pad_token_id: int
    """Id that pads a row to its microbatch's width."""
    steps_per_epoch: int
    """Optimizer steps of one epoch."""
    total_steps: int
    """Optimizer steps of the whole job."""

    @classmethod
    def of(cls, message: data_pb2.DataFacts) -> "DataFacts":
        """Return the facts that ``message`` carries."""
        return cls(
            splits=tuple(
                Split(name=split.name, num_rows=split.rows, labelled=split.labelled, num_steps=split.steps)
                for split in message.splits
            ),
            labels=tuple(message.labels),
            num_labels=message.num_labels,
            vocabulary_size=message.vocabulary_size,
            pad_token_id=message.pad_token_id,
            steps_per_epoch=message.steps_per_epoch,
            total_steps=message.total_steps,
        )

    def split(self, name: str) -> Split | None:
        """Return the split of that name, if it was found."""
        return next((split for split in self.splits if split.name == name), None)


def local_facts(spec: JobSpec, *, time_limit_seconds: float = TIME_LIMIT_SECONDS) -> tuple[ModelFacts, DataFacts]:
    """Return the facts of ``spec``, found by the programs of this installation, which run side by side.

    Raises:
        SpecError: A program refuses the job, fails, or takes longer than the limit; with both programs' problems.
    """
    programs = ((("stage_worker", "facts", "-"), "model"), (("dataloader_svc", "facts", "-"), "data"))
    text = to_json(spec)
    model, data = workers_pb2.ModelFacts(), data_pb2.DataFacts()
    with ThreadPoolExecutor(max_workers=2) as pool:
        asked = [
            pool.submit(_ask, arguments, message, key=key, text=text, time_limit_seconds=time_limit_seconds)
            for (arguments, key), message in zip(programs, (model, data), strict=True)
        ]
        problems = [problem for problem in (future.result() for future in asked) if problem is not None]
    if problems:
        raise SpecError(problems)
    return ModelFacts.of(model), DataFacts.of(data)


def _ask(
    arguments: Sequence[str], message: Message, *, key: str, text: str, time_limit_seconds: float
) -> Problem | None:
    """Fill ``message`` with what the program says; return what it refuses, if anything."""
    command = [sys.executable, "-m", *arguments]
    try:
        done = subprocess.run(
            command, input=text, capture_output=True, text=True, timeout=time_limit_seconds, check=False
        )
    except subprocess.TimeoutExpired:
        return Problem(key, f"`{' '.join(arguments)}` took longer than {time_limit_seconds:g} s and was ended")
    if done.returncode != 0:
        return Problem(key, _refusal(done, arguments))
    try:
        json_format.Parse(done.stdout, message, ignore_unknown_fields=True)
    except json_format.ParseError as error:
        return Problem(key, f"`{' '.join(arguments)}` did not print facts: {error}")
    return None


def _refusal(done: "subprocess.CompletedProcess[str]", arguments: Sequence[str]) -> str:
    """Return the text of the program's last ``error:`` line, or how it ended and its last words."""
    lines = [line.strip() for line in done.stderr.splitlines() if line.strip()]
    errors = [line.removeprefix("error:").strip() for line in lines if line.startswith("error:")]
    if errors:
        return errors[-1]
    last = f": {lines[-1]}" if lines else ""
    return f"`{' '.join(arguments)}` ended with exit code {done.returncode}{last}"
