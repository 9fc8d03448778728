from takt.v1 import data_pb2 as _data_pb2
from google.protobuf.internal import containers as _containers
from google.protobuf.internal import enum_type_wrapper as _enum_type_wrapper
from google.protobuf import descriptor as _descriptor
from google.protobuf import message as _message
from collections.abc import Iterable as _Iterable, Mapping as _Mapping
from typing import ClassVar as _ClassVar, Optional as _Optional, Union as _Union

DESCRIPTOR: _descriptor.FileDescriptor

class Op(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
    __slots__ = ()
    OP_UNSPECIFIED: _ClassVar[Op]
    OP_FORWARD: _ClassVar[Op]
    OP_BACKWARD: _ClassVar[Op]
    OP_INPUT_GRADIENT: _ClassVar[Op]
    OP_WEIGHT_GRADIENT: _ClassVar[Op]
    OP_SEND_ACTIVATION: _ClassVar[Op]
    OP_RECV_ACTIVATION: _ClassVar[Op]
    OP_SEND_GRADIENT: _ClassVar[Op]
    OP_RECV_GRADIENT: _ClassVar[Op]
    OP_REDUCE: _ClassVar[Op]
    OP_STEP: _ClassVar[Op]
    OP_SAVE: _ClassVar[Op]
    OP_STOP: _ClassVar[Op]

class Track(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
    __slots__ = ()
    TRACK_UNSPECIFIED: _ClassVar[Track]
    TRACK_COMPUTE: _ClassVar[Track]
    TRACK_SEND: _ClassVar[Track]
    TRACK_RECEIVE: _ClassVar[Track]
    TRACK_DATA: _ClassVar[Track]
OP_UNSPECIFIED: Op
OP_FORWARD: Op
OP_BACKWARD: Op
OP_INPUT_GRADIENT: Op
OP_WEIGHT_GRADIENT: Op
OP_SEND_ACTIVATION: Op
OP_RECV_ACTIVATION: Op
OP_SEND_GRADIENT: Op
OP_RECV_GRADIENT: Op
OP_REDUCE: Op
OP_STEP: Op
OP_SAVE: Op
OP_STOP: Op
TRACK_UNSPECIFIED: Track
TRACK_COMPUTE: Track
TRACK_SEND: Track
TRACK_RECEIVE: Track
TRACK_DATA: Track

class Command(_message.Message):
    __slots__ = ("op", "stage", "microbatch", "peer")
    OP_FIELD_NUMBER: _ClassVar[int]
    STAGE_FIELD_NUMBER: _ClassVar[int]
    MICROBATCH_FIELD_NUMBER: _ClassVar[int]
    PEER_FIELD_NUMBER: _ClassVar[int]
    op: Op
    stage: int
    microbatch: int
    peer: int
    def __init__(self, op: _Optional[_Union[Op, str]] = ..., stage: _Optional[int] = ..., microbatch: _Optional[int] = ..., peer: _Optional[int] = ...) -> None: ...

class StepCommands(_message.Message):
    __slots__ = ("job", "attempt", "phase", "split", "step", "first_seq", "denominator", "microbatches", "commands", "ends_step", "acknowledge", "after")
    JOB_FIELD_NUMBER: _ClassVar[int]
    ATTEMPT_FIELD_NUMBER: _ClassVar[int]
    PHASE_FIELD_NUMBER: _ClassVar[int]
    SPLIT_FIELD_NUMBER: _ClassVar[int]
    STEP_FIELD_NUMBER: _ClassVar[int]
    FIRST_SEQ_FIELD_NUMBER: _ClassVar[int]
    DENOMINATOR_FIELD_NUMBER: _ClassVar[int]
    MICROBATCHES_FIELD_NUMBER: _ClassVar[int]
    COMMANDS_FIELD_NUMBER: _ClassVar[int]
    ENDS_STEP_FIELD_NUMBER: _ClassVar[int]
    ACKNOWLEDGE_FIELD_NUMBER: _ClassVar[int]
    AFTER_FIELD_NUMBER: _ClassVar[int]
    job: str
    attempt: int
    phase: _data_pb2.Phase
    split: str
    step: int
    first_seq: int
    denominator: int
    microbatches: _containers.RepeatedCompositeFieldContainer[_data_pb2.MicrobatchShape]
    commands: _containers.RepeatedCompositeFieldContainer[Command]
    ends_step: bool
    acknowledge: bool
    after: int
    def __init__(self, job: _Optional[str] = ..., attempt: _Optional[int] = ..., phase: _Optional[_Union[_data_pb2.Phase, str]] = ..., split: _Optional[str] = ..., step: _Optional[int] = ..., first_seq: _Optional[int] = ..., denominator: _Optional[int] = ..., microbatches: _Optional[_Iterable[_Union[_data_pb2.MicrobatchShape, _Mapping]]] = ..., commands: _Optional[_Iterable[_Union[Command, _Mapping]]] = ..., ends_step: bool = ..., acknowledge: bool = ..., after: _Optional[int] = ...) -> None: ...

class StepReport(_message.Message):
    __slots__ = ("phase", "step", "last_seq", "loss_sums", "grad_norm", "learning_rate", "skipped", "times", "sent_bytes", "received_bytes", "peak_in_flight", "loss_scale", "sent", "clock", "spans", "memory_bytes", "after")
    PHASE_FIELD_NUMBER: _ClassVar[int]
    STEP_FIELD_NUMBER: _ClassVar[int]
    LAST_SEQ_FIELD_NUMBER: _ClassVar[int]
    LOSS_SUMS_FIELD_NUMBER: _ClassVar[int]
    GRAD_NORM_FIELD_NUMBER: _ClassVar[int]
    LEARNING_RATE_FIELD_NUMBER: _ClassVar[int]
    SKIPPED_FIELD_NUMBER: _ClassVar[int]
    TIMES_FIELD_NUMBER: _ClassVar[int]
    SENT_BYTES_FIELD_NUMBER: _ClassVar[int]
    RECEIVED_BYTES_FIELD_NUMBER: _ClassVar[int]
    PEAK_IN_FLIGHT_FIELD_NUMBER: _ClassVar[int]
    LOSS_SCALE_FIELD_NUMBER: _ClassVar[int]
    SENT_FIELD_NUMBER: _ClassVar[int]
    CLOCK_FIELD_NUMBER: _ClassVar[int]
    SPANS_FIELD_NUMBER: _ClassVar[int]
    MEMORY_BYTES_FIELD_NUMBER: _ClassVar[int]
    AFTER_FIELD_NUMBER: _ClassVar[int]
    phase: _data_pb2.Phase
    step: int
    last_seq: int
    loss_sums: _containers.RepeatedScalarFieldContainer[float]
    grad_norm: float
    learning_rate: float
    skipped: bool
    times: _containers.RepeatedCompositeFieldContainer[TimeShare]
    sent_bytes: int
    received_bytes: int
    peak_in_flight: int
    loss_scale: float
    sent: float
    clock: ClockReading
    spans: _containers.RepeatedCompositeFieldContainer[Span]
    memory_bytes: int
    after: int
    def __init__(self, phase: _Optional[_Union[_data_pb2.Phase, str]] = ..., step: _Optional[int] = ..., last_seq: _Optional[int] = ..., loss_sums: _Optional[_Iterable[float]] = ..., grad_norm: _Optional[float] = ..., learning_rate: _Optional[float] = ..., skipped: bool = ..., times: _Optional[_Iterable[_Union[TimeShare, _Mapping]]] = ..., sent_bytes: _Optional[int] = ..., received_bytes: _Optional[int] = ..., peak_in_flight: _Optional[int] = ..., loss_scale: _Optional[float] = ..., sent: _Optional[float] = ..., clock: _Optional[_Union[ClockReading, _Mapping]] = ..., spans: _Optional[_Iterable[_Union[Span, _Mapping]]] = ..., memory_bytes: _Optional[int] = ..., after: _Optional[int] = ...) -> None: ...

class ClockReading(_message.Message):
    __slots__ = ("name", "offset_seconds", "error_seconds")
    NAME_FIELD_NUMBER: _ClassVar[int]
    OFFSET_SECONDS_FIELD_NUMBER: _ClassVar[int]
    ERROR_SECONDS_FIELD_NUMBER: _ClassVar[int]
    name: str
    offset_seconds: float
    error_seconds: float
    def __init__(self, name: _Optional[str] = ..., offset_seconds: _Optional[float] = ..., error_seconds: _Optional[float] = ...) -> None: ...

class ClockEcho(_message.Message):
    __slots__ = ("sent", "received", "answered", "name")
    SENT_FIELD_NUMBER: _ClassVar[int]
    RECEIVED_FIELD_NUMBER: _ClassVar[int]
    ANSWERED_FIELD_NUMBER: _ClassVar[int]
    NAME_FIELD_NUMBER: _ClassVar[int]
    sent: float
    received: float
    answered: float
    name: str
    def __init__(self, sent: _Optional[float] = ..., received: _Optional[float] = ..., answered: _Optional[float] = ..., name: _Optional[str] = ...) -> None: ...

class Span(_message.Message):
    __slots__ = ("name", "track", "start", "end", "stage", "microbatch", "peer", "bytes", "embeddings", "head", "layers")
    NAME_FIELD_NUMBER: _ClassVar[int]
    TRACK_FIELD_NUMBER: _ClassVar[int]
    START_FIELD_NUMBER: _ClassVar[int]
    END_FIELD_NUMBER: _ClassVar[int]
    STAGE_FIELD_NUMBER: _ClassVar[int]
    MICROBATCH_FIELD_NUMBER: _ClassVar[int]
    PEER_FIELD_NUMBER: _ClassVar[int]
    BYTES_FIELD_NUMBER: _ClassVar[int]
    EMBEDDINGS_FIELD_NUMBER: _ClassVar[int]
    HEAD_FIELD_NUMBER: _ClassVar[int]
    LAYERS_FIELD_NUMBER: _ClassVar[int]
    name: str
    track: Track
    start: float
    end: float
    stage: int
    microbatch: int
    peer: int
    bytes: int
    embeddings: float
    head: float
    layers: float
    def __init__(self, name: _Optional[str] = ..., track: _Optional[_Union[Track, str]] = ..., start: _Optional[float] = ..., end: _Optional[float] = ..., stage: _Optional[int] = ..., microbatch: _Optional[int] = ..., peer: _Optional[int] = ..., bytes: _Optional[int] = ..., embeddings: _Optional[float] = ..., head: _Optional[float] = ..., layers: _Optional[float] = ...) -> None: ...

class TimeShare(_message.Message):
    __slots__ = ("activity", "busy", "stage", "seconds")
    ACTIVITY_FIELD_NUMBER: _ClassVar[int]
    BUSY_FIELD_NUMBER: _ClassVar[int]
    STAGE_FIELD_NUMBER: _ClassVar[int]
    SECONDS_FIELD_NUMBER: _ClassVar[int]
    activity: str
    busy: bool
    stage: int
    seconds: float
    def __init__(self, activity: _Optional[str] = ..., busy: bool = ..., stage: _Optional[int] = ..., seconds: _Optional[float] = ...) -> None: ...
