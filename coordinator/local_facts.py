"""Asks the facts programs of this installation about a job's model and data."""

import json
import subprocess
import sys
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import ExitStack
from typing import Generic, TypeVar

from google.protobuf import json_format
from google.protobuf.message import Message
from takt.v1 import data_pb2, workers_pb2

from coordinator.facts import DataFacts, ModelFacts, parts_question
from coordinator.parts import wants_parts
from coordinator.problem import Problem, SpecError
from coordinator.spec import JobSpec, to_json

TIME_LIMIT_SECONDS = 120.0
"""How long a facts program may take; its imports alone take seconds."""

MessageT = TypeVar("MessageT", bound=Message)


def local_facts(
    spec: JobSpec, *, with_parts: bool = False, time_limit_seconds: float = TIME_LIMIT_SECONDS
) -> tuple[ModelFacts, DataFacts]:
    """Return the facts of ``spec``, found by the programs of this installation.

    They run side by side. Where the model's parts are wanted, by ``with_parts`` or the job itself, the program for the
    model does its imports while it waits for what the data need.

    Raises:
        SpecError: A program refuses the job, fails, or takes longer than the limit; with both programs' problems.
    """
    text = to_json(spec)
    # An interrupt, whenever it comes, ends the programs first, which the pool would wait for.
    with ThreadPoolExecutor(max_workers=2) as pool, ExitStack() as programs:

        def ask(question: "_Question[MessageT]", text: str) -> Future[Problem | None]:
            return pool.submit(question.ask, text, time_limit_seconds)

        data = _Question("data", "dataloader_svc", data_pb2.DataFacts(), programs)
        model = _Question("model", "stage_worker", workers_pb2.ModelFacts(), programs)
        answers = [ask(data, text)]
        if (with_parts or wants_parts(spec)) and answers[0].result() is None:
            # Sizes depend on the data; where there are none, the model may still be wrong.
            text = _with_needs(text, parts_question(DataFacts.of(data.facts)))
        answers = [ask(model, text), *answers]
        problems = [problem for answer in answers if (problem := answer.result()) is not None]
    if problems:
        raise SpecError(problems)
    return ModelFacts.of(model.facts), DataFacts.of(data.facts)


def _with_needs(text: str, parts: workers_pb2.PartsQuestion) -> str:
    needs = json_format.MessageToDict(
        parts, preserving_proto_field_name=True, always_print_fields_with_no_presence=True
    )
    return json.dumps(json.loads(text) | {"needs": needs})


class _Question(Generic[MessageT]):
    """One run of a facts program."""

    def __init__(self, key: str, program: str, facts: MessageT, programs: ExitStack) -> None:
        """Start the program, which ``programs`` ends in any case."""
        self.facts = facts
        """Filled by `ask`."""
        self._key, self._name = key, f"{program} facts"
        self._process = subprocess.Popen(
            [sys.executable, "-m", program, "facts", "-"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        programs.callback(self.end)

    def ask(self, text: str, time_limit_seconds: float) -> Problem | None:
        """Give the program the spec, wait for its answer; return what it refuses, if anything."""
        try:
            output, complaints = self._process.communicate(text, timeout=time_limit_seconds)
        except subprocess.TimeoutExpired:
            self.end()
            return Problem(self._key, f"`{self._name}` took longer than {time_limit_seconds:g} s and was ended")
        if self._process.returncode != 0:
            return Problem.told(self._key, self._refusal(complaints))
        try:
            json_format.Parse(output, self.facts, ignore_unknown_fields=True)
        except json_format.ParseError as error:
            return Problem(self._key, f"`{self._name}` did not print facts: {error}")
        return None

    def end(self) -> None:
        """End the program if it still runs."""
        self._process.kill()
        self._process.wait()

    def _refusal(self, complaints: str) -> str:
        """Return the text of the program's last ``error:`` line, or how it ended and its last words."""
        lines = [line.strip() for line in complaints.splitlines() if line.strip()]
        errors = [line.removeprefix("error:").strip() for line in lines if line.startswith("error:")]
        if errors:
            return errors[-1]
        last = f": {lines[-1]}" if lines else ""
        return f"`{self._name}` ended with exit code {self._process.returncode}{last}"
