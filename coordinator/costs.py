"""What the parts of a model cost on one device, as a profile measured them or a model's config lets estimate them.

The file of it is one JSON document. Times are seconds; a list has one entry for each number in ``rows``::

    {"schema": "takt/v1", "kind": "costs",
     "source": "profile", "device": "cpu", "optimizer": "adamw", "precision": "fp32",
     "rows": [2, 8],
     "embeddings": {"forward_seconds": [0.001, 0.003], "backward_seconds": [0.002, 0.006],
                    "input_gradient_seconds": [0.0, 0.0], "weight_gradient_seconds": [0.002, 0.006],
                    "optimizer_seconds": 0.05, "parameter_bytes": 93763584},
     "layers": [PART, ...],
     "head": PART,
     "action_seconds": 0.0003,
     "transfer": {"latency_seconds": 0.0002, "seconds_per_byte": 1e-9, "bytes_per_row": 196608},
     "reduce_seconds_per_byte": 2e-9,
     "step_seconds": 0.004,
     "first_backward_seconds": 0.01}

``layers`` has one entry for all layers alike, or one a layer. A key more or less is refused.
"""

import json
import math
from bisect import bisect_right
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Annotated, Any, ClassVar, Literal

from pydantic import ConfigDict, Field, TypeAdapter, ValidationError

from coordinator.partition import StageSlice
from coordinator.schedule.placement import Placement
from coordinator.schedule.stage_costs import StageCosts
from coordinator.sections import MAX_COSTS_BYTES

SCHEMA, KIND = "takt/v1", "costs"
_SHORTEST_SECONDS = 1e-9
"""What an action takes at least, so that every one has a length."""
_STRICT = ConfigDict(extra="forbid", strict=True, allow_inf_nan=False)

Seconds = Annotated[float, Field(ge=0)]
Text = Annotated[str, Field(min_length=1, max_length=256)]
Rows = Annotated[int, Field(ge=1, le=2**24)]


class CostsError(ValueError):
    """Costs that are none, or that do not fit a model; the text begins with the key at fault, where there is one."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PartCosts:
    """What one part costs: seconds of one microbatch, one for each measured number of rows; and of one step."""

    __pydantic_config__: ClassVar[ConfigDict] = _STRICT

    forward_seconds: tuple[Seconds, ...]
    backward_seconds: tuple[Seconds, ...]
    """A whole backward; not taken for the sum of its halves."""
    input_gradient_seconds: tuple[Seconds, ...]
    weight_gradient_seconds: tuple[Seconds, ...]
    optimizer_seconds: Seconds
    """Update of the part's parameters, once a step."""
    parameter_bytes: Annotated[int, Field(ge=0)]
    """What replicas add up of its gradients, once a step."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TransferCosts:
    """What one microbatch's way from a stage to the next costs, whichever way it goes."""

    __pydantic_config__: ClassVar[ConfigDict] = _STRICT

    latency_seconds: Seconds
    """What a message of no bytes takes."""
    seconds_per_byte: Seconds
    bytes_per_row: Annotated[float, Field(ge=0)]
    """A row's width in tokens x hidden size x bytes of an element."""

    def seconds(self, rows: float) -> float:
        """Return what a message of ``rows`` rows takes."""
        return self.latency_seconds + self.seconds_per_byte * self.bytes_per_row * rows


@dataclass(frozen=True, slots=True, kw_only=True)
class CostModel:
    """What the parts of one model cost on one device.

    Raises:
        CostsError: ``rows`` does not ascend, or a list has not one entry for each number in it.
    """

    __pydantic_config__: ClassVar[ConfigDict] = _STRICT

    source: Literal["profile", "estimate"]
    """Measured, or worked out from the model's config."""
    device: Text
    """What it was measured on, or is meant for: cpu, cuda and the like."""
    optimizer: Text
    """Optimizer that ``optimizer_seconds`` is of, as train.optimizer names it."""
    precision: Text
    """As train.precision names it."""
    rows: Annotated[tuple[Rows, ...], Field(min_length=1, max_length=256)]
    """Rows of the microbatches that were measured, ascending."""
    embeddings: PartCosts
    """What stage 0 computes before its first layer."""
    layers: Annotated[tuple[PartCosts, ...], Field(min_length=1, max_length=2**16)]
    """One entry for all layers alike, or one a layer, from the input on."""
    head: PartCosts
    """What the last stage computes after its last layer, the loss included."""
    action_seconds: Seconds
    """What each forward, backward or half of one takes on its worker beside what its parts compute."""
    transfer: TransferCosts
    reduce_seconds_per_byte: Seconds
    """Adding up gradients over replicas, for each byte of a parameter; 0 counts where there is one replica."""
    step_seconds: Seconds
    """What a step takes beside all that: the vote, what the coordinator and the data service keep it waiting for."""
    first_backward_seconds: Seconds
    """What a step's first backward of stage 0 takes longer than the others: it makes the gradient of a table."""

    def __post_init__(self) -> None:
        for before, after in zip(self.rows, self.rows[1:], strict=False):
            if after <= before:
                raise CostsError(f"rows is {list(self.rows)}, needs numbers that ascend, each once")
        for name, part in self._parts():
            for key, seconds in asdict(part).items():
                if isinstance(seconds, tuple) and len(seconds) != len(self.rows):
                    raise CostsError(
                        f"{name}.{key} has {len(seconds)} entries, but rows has {len(self.rows)}; needs one for each"
                    )

    def _parts(self) -> list[tuple[str, PartCosts]]:
        layers = [(f"layers.{index}", part) for index, part in enumerate(self.layers)]
        return [("embeddings", self.embeddings), *layers, ("head", self.head)]

    def check_layers(self, num_layers: int) -> None:
        """Return if these are costs of a model of ``num_layers`` layers.

        Raises:
            CostsError: They are of another number of layers.
        """
        if len(self.layers) not in (1, num_layers):
            raise CostsError(
                f"layers has {len(self.layers)} entries, but the model has {num_layers} layers; "
                "needs one for each, or one for all; measure this model with takt profile"
            )

    def parts_of(self, piece: StageSlice, *, is_first: bool, is_last: bool) -> list[PartCosts]:
        """Return the parts that the stage ``piece`` computes, from the input on."""
        inner = range(piece.first_layer, piece.first_layer + piece.num_layers)
        layers = [self.layers[index if len(self.layers) > 1 else 0] for index in inner]
        return [*[self.embeddings] * is_first, *layers, *[self.head] * is_last]


def at_rows(seconds: Sequence[float], rows: float, measured: Sequence[int]) -> float:
    """Return what a microbatch of ``rows`` rows takes, where ``seconds`` are those of ``measured``.

    On the straight line through the two measured numbers around it, or through the two nearest; through 0 where one
    was measured. Never below 0.
    """
    if len(measured) == 1:
        return seconds[0] * rows / measured[0]
    right = min(max(bisect_right(measured, rows), 1), len(measured) - 1)
    slope = (seconds[right] - seconds[right - 1]) / (measured[right] - measured[right - 1])
    return max(0.0, seconds[right - 1] + slope * (rows - measured[right - 1]))


def stage_costs(
    costs: CostModel, partition: Sequence[StageSlice], placement: Placement, *, rows: float, dp: int
) -> StageCosts:
    """Return what each stage of ``partition`` costs.

    Args:
        costs: of the whole model.
        partition: layers of each stage, stage 0 first.
        placement: which worker holds which stage.
        rows: of a microbatch, the mean where they differ.
        dp: replicas.

    Raises:
        CostsError: They are of another number of layers.
    """
    costs.check_layers(sum(piece.num_layers for piece in partition))
    last = len(partition) - 1
    stages = [costs.parts_of(piece, is_first=piece.stage == 0, is_last=piece.stage == last) for piece in partition]

    def action(table: str) -> tuple[float, ...]:
        at = {part: at_rows(getattr(part, table), rows, costs.rows) for part in {p for own in stages for p in own}}
        return tuple(max(_SHORTEST_SECONDS, costs.action_seconds + math.fsum(at[p] for p in own)) for own in stages)

    held = [[part for s in placement.stages_of(w) for part in stages[s]] for w in range(placement.num_workers)]
    per_byte = costs.reduce_seconds_per_byte if dp > 1 else 0.0
    return StageCosts(
        forward=action("forward_seconds"),
        backward=action("backward_seconds"),
        input_gradient=action("input_gradient_seconds"),
        weight_gradient=action("weight_gradient_seconds"),
        transfer=(costs.transfer.seconds(rows),) * last,
        reduce=tuple(per_byte * sum(part.parameter_bytes for part in own) for own in held),
        optimizer=tuple(math.fsum(part.optimizer_seconds for part in own) for own in held),
        step_end=costs.step_seconds,
        first_backward=costs.first_backward_seconds,
    )


_COST_MODEL = TypeAdapter(CostModel)


def to_document(costs: CostModel) -> dict[str, Any]:
    """Return what the file of ``costs`` holds."""
    document: dict[str, Any] = _COST_MODEL.dump_python(costs, mode="json")
    return {"schema": SCHEMA, "kind": KIND, **document}


def from_document(document: object) -> CostModel:
    """Return the costs that ``document`` holds, the content of a file of costs.

    Raises:
        CostsError: It holds none; the text says the key, what is there and what is needed.
    """
    if not isinstance(document, Mapping):
        raise CostsError("is no JSON object; needs what takt profile writes")
    for key, needed in (("schema", SCHEMA), ("kind", KIND)):
        if document.get(key) != needed:
            raise CostsError(f"{key} is {_told(document.get(key))}, needs {needed!r}, as takt profile writes it")
    content = {key: value for key, value in document.items() if key not in ("schema", "kind")}
    try:
        # Through JSON, because there pydantic's strict types take a list for a tuple.
        return _COST_MODEL.validate_json(json.dumps(content))
    except ValidationError as error:
        first = error.errors(include_url=False)[0]
        cause = first.get("ctx", {}).get("error")
        if isinstance(cause, CostsError):
            raise cause from None
        key = ".".join(map(str, first["loc"]))
        raise CostsError(f"{key}: {_message(first['type'], first['msg'], first['input'])}") from None


def from_text(text: str) -> CostModel:
    """Return the costs that ``text`` holds, that of a file of costs.

    Raises:
        CostsError: It holds none.
    """
    if len(text.encode()) > MAX_COSTS_BYTES:
        raise CostsError(f"has {len(text.encode())} bytes, at most {MAX_COSTS_BYTES} are read")
    try:
        return from_document(json.loads(text))
    except CostsError:
        raise
    except ValueError as error:
        raise CostsError(f"is not JSON: {error}; needs what takt profile writes") from None
    except RecursionError:
        raise CostsError("is nested too deep; needs what takt profile writes") from None


def is_path(text: str) -> bool:
    """Whether ``text`` can only be the path of a file of costs, and not what such a file holds."""
    return not text.lstrip().startswith("{")


def problem_of_text(text: str | None) -> str | None:
    """Return what is wrong with ``text`` as that of a file of costs; None where it is good, or there is none."""
    if text is None:
        return None
    if is_path(text):
        # Whoever reads a job file puts the text in place of its path.
        return f"is {_told(text)}, a path; a spec holds the text of the file that takt profile wrote"
    try:
        from_text(text)
    except CostsError as error:
        return f"holds no costs: {error}"
    return None


def _message(kind: str, text: str, value: object) -> str:
    if kind in ("missing", "missing_argument"):
        return "is missing; takt profile writes it"
    if kind in ("extra_forbidden", "unexpected_keyword_argument"):
        return "is no key of a file of costs; leave it out"
    return f"is {_told(value)}; {text[:1].lower()}{text[1:]}"


def _told(value: object) -> str:
    text = repr(value)
    return text if len(text) <= 60 else f"{text[:57]}..."
