"""Facts of models that were asked for before."""

import json
from collections import OrderedDict

from takt.v1 import workers_pb2 as pb

from coordinator.facts import ModelFacts

_MOST = 64


class KnownModels:
    """Facts of models that are built from a config; those of a folder may change, and are asked for each time."""

    def __init__(self) -> None:
        self._facts: OrderedDict[str, ModelFacts] = OrderedDict()

    @staticmethod
    def key_of(spec_json: str, parts: pb.PartsQuestion | None) -> str | None:
        """Return what the facts of a job's model depend on; None where that is more than the job says."""
        spec = json.loads(spec_json)
        if spec["model"]["config"] is None:
            return None
        asked = None if parts is None else parts.SerializeToString(deterministic=True).hex()
        return json.dumps([spec["model"], spec["train"], asked], sort_keys=True)

    def get(self, key: str | None) -> ModelFacts | None:
        """Return the facts, None where they are not known."""
        return None if key is None else self._facts.get(key)

    def add(self, key: str | None, facts: ModelFacts) -> None:
        """Keep facts, and forget those that were found longest ago."""
        if key is not None:
            self._facts[key] = facts
            while len(self._facts) > _MOST:
                self._facts.popitem(last=False)

    def clear(self) -> None:
        """Forget all: an agent that joins may have other libraries."""
        self._facts.clear()
