"""What the store keeps of an attempt, so that another coordinator can carry it on without asking anybody."""

import json
from collections.abc import Sequence
from dataclasses import dataclass

from google.protobuf import json_format
from takt.v1 import data_pb2, workers_pb2

from coordinator.facts import DataFacts, ModelFacts
from coordinator.records import EvaluationRecord, StepRecord
from coordinator.start import Carried, Start


@dataclass(frozen=True, slots=True, kw_only=True)
class KeptAttempt:
    """Facts that an attempt's plan was made of, and where it began."""

    model: ModelFacts
    data: DataFacts
    begins_after: int
    """Step that the attempt began after."""
    committed: int
    """Last step in the journal then; the attempt does those again that lie between."""
    evaluated: frozenset[tuple[int, str]]
    """Training step and split of the evaluations that had been made before it."""

    @property
    def start(self) -> Start:
        """Where the attempt began."""
        return Start(step=self.begins_after, evaluations=self.evaluated)

    def carried(
        self, steps: Sequence[StepRecord], evaluations: Sequence[EvaluationRecord], saved: Sequence[int]
    ) -> Carried | None:
        """Return how far the attempt has come; None where it was doing steps again, which the journal does not tell.

        Args:
            steps: of the job, in order.
            evaluations: of the job.
            saved: steps whose checkpoints are complete.
        """
        step = max([self.committed, *(record.step for record in steps[-1:])])
        if step == self.committed > self.begins_after:
            return None
        known = frozenset((record.step, record.split) for record in evaluations)
        return Carried(step=step, is_saved=step in saved, evaluations=known)

    def text(self) -> str:
        """Return it as JSON."""
        return json.dumps(
            {
                "model": json_format.MessageToDict(self.model.message(), preserving_proto_field_name=True),
                "data": json_format.MessageToDict(self.data.message(), preserving_proto_field_name=True),
                "begins_after": self.begins_after,
                "committed": self.committed,
                "evaluated": sorted(self.evaluated),
            }
        )

    @classmethod
    def of(cls, text: str) -> "KeptAttempt":
        """Return what ``text`` returned.

        Raises:
            ValueError, KeyError, TypeError: it is no such text.
        """
        document = json.loads(text)
        model, data = workers_pb2.ModelFacts(), data_pb2.DataFacts()
        try:
            json_format.ParseDict(document["model"], model)
            json_format.ParseDict(document["data"], data)
        except json_format.ParseError as error:
            raise ValueError(f"facts that cannot be read: {error}") from error
        return cls(
            model=ModelFacts.of(model),
            data=DataFacts.of(data),
            begins_after=int(document["begins_after"]),
            committed=int(document["committed"]),
            evaluated=frozenset((int(step), str(split)) for step, split in document["evaluated"]),
        )
