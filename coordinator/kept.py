"""What the store keeps of an attempt, so that another coordinator can carry it on without asking anybody."""

import json
from dataclasses import dataclass

from google.protobuf import json_format
from takt.v1 import data_pb2, workers_pb2

from coordinator.facts import DataFacts, ModelFacts


@dataclass(frozen=True, slots=True, kw_only=True)
class KeptAttempt:
    """Facts that an attempt's plan was made of, and where it began."""

    model: ModelFacts
    data: DataFacts
    begins_after: int
    """Step that the attempt began after."""
    evaluated: frozenset[tuple[int, str]]
    """Training step and split of the evaluations that had been made before it."""

    def text(self) -> str:
        """Return it as JSON."""
        return json.dumps(
            {
                "model": json_format.MessageToDict(self.model.message(), preserving_proto_field_name=True),
                "data": json_format.MessageToDict(self.data.message(), preserving_proto_field_name=True),
                "begins_after": self.begins_after,
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
            evaluated=frozenset((int(step), str(split)) for step, split in document["evaluated"]),
        )
