from google.protobuf.internal import containers as _containers
from google.protobuf.internal import enum_type_wrapper as _enum_type_wrapper
from google.protobuf import descriptor as _descriptor
from google.protobuf import message as _message
from collections.abc import Iterable as _Iterable, Mapping as _Mapping
from typing import ClassVar as _ClassVar, Optional as _Optional, Union as _Union

DESCRIPTOR: _descriptor.FileDescriptor

class Phase(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
    __slots__ = ()
    PHASE_UNSPECIFIED: _ClassVar[Phase]
    PHASE_TRAIN: _ClassVar[Phase]
    PHASE_EVALUATE: _ClassVar[Phase]

class DataType(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
    __slots__ = ()
    DATA_TYPE_UNSPECIFIED: _ClassVar[DataType]
    DATA_TYPE_INT64: _ClassVar[DataType]
    DATA_TYPE_FLOAT32: _ClassVar[DataType]
PHASE_UNSPECIFIED: Phase
PHASE_TRAIN: Phase
PHASE_EVALUATE: Phase
DATA_TYPE_UNSPECIFIED: DataType
DATA_TYPE_INT64: DataType
DATA_TYPE_FLOAT32: DataType

class InspectDataRequest(_message.Message):
    __slots__ = ("spec_json",)
    SPEC_JSON_FIELD_NUMBER: _ClassVar[int]
    spec_json: str
    def __init__(self, spec_json: _Optional[str] = ...) -> None: ...

class InspectDataResponse(_message.Message):
    __slots__ = ("facts",)
    FACTS_FIELD_NUMBER: _ClassVar[int]
    facts: DataFacts
    def __init__(self, facts: _Optional[_Union[DataFacts, _Mapping]] = ...) -> None: ...

class DataFacts(_message.Message):
    __slots__ = ("splits", "labels", "num_labels", "vocabulary_size", "pad_token_id", "steps_per_epoch", "total_steps", "written_labels")
    SPLITS_FIELD_NUMBER: _ClassVar[int]
    LABELS_FIELD_NUMBER: _ClassVar[int]
    NUM_LABELS_FIELD_NUMBER: _ClassVar[int]
    VOCABULARY_SIZE_FIELD_NUMBER: _ClassVar[int]
    PAD_TOKEN_ID_FIELD_NUMBER: _ClassVar[int]
    STEPS_PER_EPOCH_FIELD_NUMBER: _ClassVar[int]
    TOTAL_STEPS_FIELD_NUMBER: _ClassVar[int]
    WRITTEN_LABELS_FIELD_NUMBER: _ClassVar[int]
    splits: _containers.RepeatedCompositeFieldContainer[Split]
    labels: _containers.RepeatedScalarFieldContainer[str]
    num_labels: int
    vocabulary_size: int
    pad_token_id: int
    steps_per_epoch: int
    total_steps: int
    written_labels: _containers.RepeatedScalarFieldContainer[str]
    def __init__(self, splits: _Optional[_Iterable[_Union[Split, _Mapping]]] = ..., labels: _Optional[_Iterable[str]] = ..., num_labels: _Optional[int] = ..., vocabulary_size: _Optional[int] = ..., pad_token_id: _Optional[int] = ..., steps_per_epoch: _Optional[int] = ..., total_steps: _Optional[int] = ..., written_labels: _Optional[_Iterable[str]] = ...) -> None: ...

class Split(_message.Message):
    __slots__ = ("name", "rows", "labelled", "steps", "malformed", "digest")
    NAME_FIELD_NUMBER: _ClassVar[int]
    ROWS_FIELD_NUMBER: _ClassVar[int]
    LABELLED_FIELD_NUMBER: _ClassVar[int]
    STEPS_FIELD_NUMBER: _ClassVar[int]
    MALFORMED_FIELD_NUMBER: _ClassVar[int]
    DIGEST_FIELD_NUMBER: _ClassVar[int]
    name: str
    rows: int
    labelled: bool
    steps: int
    malformed: int
    digest: str
    def __init__(self, name: _Optional[str] = ..., rows: _Optional[int] = ..., labelled: bool = ..., steps: _Optional[int] = ..., malformed: _Optional[int] = ..., digest: _Optional[str] = ...) -> None: ...

class DescribeStepsRequest(_message.Message):
    __slots__ = ("job", "phase", "split", "first", "count", "digest")
    JOB_FIELD_NUMBER: _ClassVar[int]
    PHASE_FIELD_NUMBER: _ClassVar[int]
    SPLIT_FIELD_NUMBER: _ClassVar[int]
    FIRST_FIELD_NUMBER: _ClassVar[int]
    COUNT_FIELD_NUMBER: _ClassVar[int]
    DIGEST_FIELD_NUMBER: _ClassVar[int]
    job: str
    phase: Phase
    split: str
    first: int
    count: int
    digest: str
    def __init__(self, job: _Optional[str] = ..., phase: _Optional[_Union[Phase, str]] = ..., split: _Optional[str] = ..., first: _Optional[int] = ..., count: _Optional[int] = ..., digest: _Optional[str] = ...) -> None: ...

class DescribeStepsResponse(_message.Message):
    __slots__ = ("steps",)
    STEPS_FIELD_NUMBER: _ClassVar[int]
    steps: _containers.RepeatedCompositeFieldContainer[StepDescription]
    def __init__(self, steps: _Optional[_Iterable[_Union[StepDescription, _Mapping]]] = ...) -> None: ...

class StepDescription(_message.Message):
    __slots__ = ("step", "epoch", "denominator", "examples", "tokens", "padded_tokens", "replicas")
    STEP_FIELD_NUMBER: _ClassVar[int]
    EPOCH_FIELD_NUMBER: _ClassVar[int]
    DENOMINATOR_FIELD_NUMBER: _ClassVar[int]
    EXAMPLES_FIELD_NUMBER: _ClassVar[int]
    TOKENS_FIELD_NUMBER: _ClassVar[int]
    PADDED_TOKENS_FIELD_NUMBER: _ClassVar[int]
    REPLICAS_FIELD_NUMBER: _ClassVar[int]
    step: int
    epoch: int
    denominator: int
    examples: int
    tokens: int
    padded_tokens: int
    replicas: _containers.RepeatedCompositeFieldContainer[ReplicaShape]
    def __init__(self, step: _Optional[int] = ..., epoch: _Optional[int] = ..., denominator: _Optional[int] = ..., examples: _Optional[int] = ..., tokens: _Optional[int] = ..., padded_tokens: _Optional[int] = ..., replicas: _Optional[_Iterable[_Union[ReplicaShape, _Mapping]]] = ...) -> None: ...

class ReplicaShape(_message.Message):
    __slots__ = ("microbatches",)
    MICROBATCHES_FIELD_NUMBER: _ClassVar[int]
    microbatches: _containers.RepeatedCompositeFieldContainer[MicrobatchShape]
    def __init__(self, microbatches: _Optional[_Iterable[_Union[MicrobatchShape, _Mapping]]] = ...) -> None: ...

class MicrobatchShape(_message.Message):
    __slots__ = ("rows", "width", "row_ids")
    ROWS_FIELD_NUMBER: _ClassVar[int]
    WIDTH_FIELD_NUMBER: _ClassVar[int]
    ROW_IDS_FIELD_NUMBER: _ClassVar[int]
    rows: int
    width: int
    row_ids: _containers.RepeatedScalarFieldContainer[int]
    def __init__(self, rows: _Optional[int] = ..., width: _Optional[int] = ..., row_ids: _Optional[_Iterable[int]] = ...) -> None: ...

class ReadStepRequest(_message.Message):
    __slots__ = ("job", "phase", "split", "step", "dp_rank", "columns", "digest")
    JOB_FIELD_NUMBER: _ClassVar[int]
    PHASE_FIELD_NUMBER: _ClassVar[int]
    SPLIT_FIELD_NUMBER: _ClassVar[int]
    STEP_FIELD_NUMBER: _ClassVar[int]
    DP_RANK_FIELD_NUMBER: _ClassVar[int]
    COLUMNS_FIELD_NUMBER: _ClassVar[int]
    DIGEST_FIELD_NUMBER: _ClassVar[int]
    job: str
    phase: Phase
    split: str
    step: int
    dp_rank: int
    columns: _containers.RepeatedScalarFieldContainer[str]
    digest: str
    def __init__(self, job: _Optional[str] = ..., phase: _Optional[_Union[Phase, str]] = ..., split: _Optional[str] = ..., step: _Optional[int] = ..., dp_rank: _Optional[int] = ..., columns: _Optional[_Iterable[str]] = ..., digest: _Optional[str] = ...) -> None: ...

class ReadStepResponse(_message.Message):
    __slots__ = ("microbatches",)
    MICROBATCHES_FIELD_NUMBER: _ClassVar[int]
    microbatches: _containers.RepeatedCompositeFieldContainer[Microbatch]
    def __init__(self, microbatches: _Optional[_Iterable[_Union[Microbatch, _Mapping]]] = ...) -> None: ...

class Microbatch(_message.Message):
    __slots__ = ("microbatch", "row_ids", "columns", "continues")
    MICROBATCH_FIELD_NUMBER: _ClassVar[int]
    ROW_IDS_FIELD_NUMBER: _ClassVar[int]
    COLUMNS_FIELD_NUMBER: _ClassVar[int]
    CONTINUES_FIELD_NUMBER: _ClassVar[int]
    microbatch: int
    row_ids: _containers.RepeatedScalarFieldContainer[int]
    columns: _containers.RepeatedCompositeFieldContainer[Column]
    continues: bool
    def __init__(self, microbatch: _Optional[int] = ..., row_ids: _Optional[_Iterable[int]] = ..., columns: _Optional[_Iterable[_Union[Column, _Mapping]]] = ..., continues: bool = ...) -> None: ...

class Column(_message.Message):
    __slots__ = ("name", "data_type", "shape", "data")
    NAME_FIELD_NUMBER: _ClassVar[int]
    DATA_TYPE_FIELD_NUMBER: _ClassVar[int]
    SHAPE_FIELD_NUMBER: _ClassVar[int]
    DATA_FIELD_NUMBER: _ClassVar[int]
    name: str
    data_type: DataType
    shape: _containers.RepeatedScalarFieldContainer[int]
    data: bytes
    def __init__(self, name: _Optional[str] = ..., data_type: _Optional[_Union[DataType, str]] = ..., shape: _Optional[_Iterable[int]] = ..., data: _Optional[bytes] = ...) -> None: ...
