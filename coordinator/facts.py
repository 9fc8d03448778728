"""Facts about a job's model and data, which other rooms find out."""

from dataclasses import dataclass, field

from takt.v1 import data_pb2, workers_pb2

from coordinator.parts import ModelParts


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
    pad_token_ids: tuple[int, ...] = ()
    """Pad ids that its positions can count from; empty where they do not follow the pad id."""
    has_head: bool = False
    """Whether the model folder holds a head for classification."""
    parts: ModelParts | None = None
    """What its parts hold and cost; only where that was asked."""

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
            pad_token_ids=tuple(message.pad_token_ids),
            has_head=message.has_head,
            parts=ModelParts.of(message.parts) if message.HasField("parts") else None,
        )

    def message(self) -> workers_pb2.ModelFacts:
        """Return the message that carries these facts."""
        return workers_pb2.ModelFacts(
            model_type=self.model_type,
            num_layers=self.num_layers,
            hidden_size=self.hidden_size,
            max_positions=self.max_positions,
            vocabulary_size=self.vocabulary_size,
            token_types=self.token_types,
            labels=self.labels,
            pad_token_ids=self.pad_token_ids,
            has_head=self.has_head,
            parts=self.parts.message() if self.parts is not None else None,
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class Split:
    """One split of a task."""

    name: str
    """train, validation or test; validation_matched and the like where a task has two."""
    num_rows: int
    """Rows, after data.max_train_rows."""
    labelled: bool
    """Whether its rows have labels; all have for a token-level objective."""
    num_steps: int
    """Steps that a forward pass over it takes, by eval.batch_size."""
    num_malformed: int = 0
    """Lines of its file that were left out."""
    digest: str = ""
    """Digest of its rows, opaque; empty where whoever found the facts out told none."""


@dataclass(frozen=True, slots=True, kw_only=True)
class DataFacts:
    """What there is to know of a job's rows before a step is made of them."""

    splits: tuple[Split, ...]
    """Splits that were found, in that order."""
    labels: tuple[str, ...]
    """Label names in the order of their ids; empty for a regression task and for a token-level objective."""
    written_labels: tuple[str, ...] = field(default=(), kw_only=True)
    """How the files of GLUE write each of ``labels``."""
    num_labels: int
    """Outputs that the head needs; 0 for a token-level objective, whose head has one for each token."""
    vocabulary_size: int
    """Entries of the tokenizer's vocabulary; ids are below it."""
    pad_token_id: int
    """Id that pads a row to its microbatch's width."""
    steps_per_epoch: int
    """Optimizer steps of one epoch."""
    total_steps: int
    """Optimizer steps of the whole job; 0 where it predicts."""

    @classmethod
    def of(cls, message: data_pb2.DataFacts) -> "DataFacts":
        """Return the facts that ``message`` carries."""
        return cls(
            splits=tuple(
                Split(
                    name=split.name,
                    num_rows=split.rows,
                    labelled=split.labelled,
                    num_steps=split.steps,
                    num_malformed=split.malformed,
                    digest=split.digest,
                )
                for split in message.splits
            ),
            labels=tuple(message.labels),
            written_labels=tuple(message.written_labels),
            num_labels=message.num_labels,
            vocabulary_size=message.vocabulary_size,
            pad_token_id=message.pad_token_id,
            steps_per_epoch=message.steps_per_epoch,
            total_steps=message.total_steps,
        )

    def message(self) -> data_pb2.DataFacts:
        """Return the message that carries these facts."""
        return data_pb2.DataFacts(
            splits=[
                data_pb2.Split(
                    name=split.name,
                    rows=split.num_rows,
                    labelled=split.labelled,
                    steps=split.num_steps,
                    malformed=split.num_malformed,
                    digest=split.digest,
                )
                for split in self.splits
            ],
            labels=self.labels,
            written_labels=self.written_labels,
            num_labels=self.num_labels,
            vocabulary_size=self.vocabulary_size,
            pad_token_id=self.pad_token_id,
            steps_per_epoch=self.steps_per_epoch,
            total_steps=self.total_steps,
        )

    @property
    def evaluated_splits(self) -> tuple[Split, ...]:
        """Splits that an evaluation goes through: those for validation that have labelled rows."""
        return tuple(
            split for split in self.splits if split.name.startswith("validation") and split.labelled and split.num_rows
        )

    def split(self, name: str) -> Split | None:
        """Return the split of that name, if it was found."""
        return next((split for split in self.splits if split.name == name), None)


def parts_question(data: DataFacts) -> workers_pb2.PartsQuestion:
    """Return what decides the sizes of a model's parts beside its config."""
    return workers_pb2.PartsQuestion(
        num_labels=data.num_labels, vocabulary_size=data.vocabulary_size, pad_token_id=data.pad_token_id
    )
