from takt.v1 import commands_pb2 as _commands_pb2
from google.protobuf.internal import containers as _containers
from google.protobuf.internal import enum_type_wrapper as _enum_type_wrapper
from google.protobuf import descriptor as _descriptor
from google.protobuf import message as _message
from collections.abc import Iterable as _Iterable, Mapping as _Mapping
from typing import ClassVar as _ClassVar, Optional as _Optional, Union as _Union

DESCRIPTOR: _descriptor.FileDescriptor

class EndCause(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
    __slots__ = ()
    END_CAUSE_UNSPECIFIED: _ClassVar[EndCause]
    END_CAUSE_EXITED: _ClassVar[EndCause]
    END_CAUSE_SIGNALLED: _ClassVar[EndCause]
    END_CAUSE_RELEASED: _ClassVar[EndCause]
    END_CAUSE_STUCK: _ClassVar[EndCause]
    END_CAUSE_SILENT: _ClassVar[EndCause]
    END_CAUSE_NOT_STARTED: _ClassVar[EndCause]
END_CAUSE_UNSPECIFIED: EndCause
END_CAUSE_EXITED: EndCause
END_CAUSE_SIGNALLED: EndCause
END_CAUSE_RELEASED: EndCause
END_CAUSE_STUCK: EndCause
END_CAUSE_SILENT: EndCause
END_CAUSE_NOT_STARTED: EndCause

class AttendRequest(_message.Message):
    __slots__ = ("hello", "heartbeat", "started", "ended", "inspected", "leaving", "stopping")
    HELLO_FIELD_NUMBER: _ClassVar[int]
    HEARTBEAT_FIELD_NUMBER: _ClassVar[int]
    STARTED_FIELD_NUMBER: _ClassVar[int]
    ENDED_FIELD_NUMBER: _ClassVar[int]
    INSPECTED_FIELD_NUMBER: _ClassVar[int]
    LEAVING_FIELD_NUMBER: _ClassVar[int]
    STOPPING_FIELD_NUMBER: _ClassVar[int]
    hello: AgentHello
    heartbeat: Heartbeat
    started: ExecutorStarted
    ended: ExecutorEnded
    inspected: ModelInspected
    leaving: AgentLeaving
    stopping: AgentStopping
    def __init__(self, hello: _Optional[_Union[AgentHello, _Mapping]] = ..., heartbeat: _Optional[_Union[Heartbeat, _Mapping]] = ..., started: _Optional[_Union[ExecutorStarted, _Mapping]] = ..., ended: _Optional[_Union[ExecutorEnded, _Mapping]] = ..., inspected: _Optional[_Union[ModelInspected, _Mapping]] = ..., leaving: _Optional[_Union[AgentLeaving, _Mapping]] = ..., stopping: _Optional[_Union[AgentStopping, _Mapping]] = ...) -> None: ...

class AgentLeaving(_message.Message):
    __slots__ = ()
    def __init__(self) -> None: ...

class AgentStopping(_message.Message):
    __slots__ = ()
    def __init__(self) -> None: ...

class AttendResponse(_message.Message):
    __slots__ = ("welcome", "assign", "release", "inspect_model")
    WELCOME_FIELD_NUMBER: _ClassVar[int]
    ASSIGN_FIELD_NUMBER: _ClassVar[int]
    RELEASE_FIELD_NUMBER: _ClassVar[int]
    INSPECT_MODEL_FIELD_NUMBER: _ClassVar[int]
    welcome: AgentWelcome
    assign: Assignment
    release: Release
    inspect_model: InspectModel
    def __init__(self, welcome: _Optional[_Union[AgentWelcome, _Mapping]] = ..., assign: _Optional[_Union[Assignment, _Mapping]] = ..., release: _Optional[_Union[Release, _Mapping]] = ..., inspect_model: _Optional[_Union[InspectModel, _Mapping]] = ...) -> None: ...

class AgentHello(_message.Message):
    __slots__ = ("agent", "host", "slot", "device", "pid", "metrics_address", "work", "last_end")
    AGENT_FIELD_NUMBER: _ClassVar[int]
    HOST_FIELD_NUMBER: _ClassVar[int]
    SLOT_FIELD_NUMBER: _ClassVar[int]
    DEVICE_FIELD_NUMBER: _ClassVar[int]
    PID_FIELD_NUMBER: _ClassVar[int]
    METRICS_ADDRESS_FIELD_NUMBER: _ClassVar[int]
    WORK_FIELD_NUMBER: _ClassVar[int]
    LAST_END_FIELD_NUMBER: _ClassVar[int]
    agent: str
    host: str
    slot: int
    device: str
    pid: int
    metrics_address: str
    work: AgentWork
    last_end: ExecutorEnded
    def __init__(self, agent: _Optional[str] = ..., host: _Optional[str] = ..., slot: _Optional[int] = ..., device: _Optional[str] = ..., pid: _Optional[int] = ..., metrics_address: _Optional[str] = ..., work: _Optional[_Union[AgentWork, _Mapping]] = ..., last_end: _Optional[_Union[ExecutorEnded, _Mapping]] = ...) -> None: ...

class AgentWork(_message.Message):
    __slots__ = ("job", "attempt", "worker", "pid", "log")
    JOB_FIELD_NUMBER: _ClassVar[int]
    ATTEMPT_FIELD_NUMBER: _ClassVar[int]
    WORKER_FIELD_NUMBER: _ClassVar[int]
    PID_FIELD_NUMBER: _ClassVar[int]
    LOG_FIELD_NUMBER: _ClassVar[int]
    job: str
    attempt: int
    worker: int
    pid: int
    log: str
    def __init__(self, job: _Optional[str] = ..., attempt: _Optional[int] = ..., worker: _Optional[int] = ..., pid: _Optional[int] = ..., log: _Optional[str] = ...) -> None: ...

class AgentWelcome(_message.Message):
    __slots__ = ("lease_seconds",)
    LEASE_SECONDS_FIELD_NUMBER: _ClassVar[int]
    lease_seconds: float
    def __init__(self, lease_seconds: _Optional[float] = ...) -> None: ...

class Heartbeat(_message.Message):
    __slots__ = ("job", "idle_seconds")
    JOB_FIELD_NUMBER: _ClassVar[int]
    IDLE_SECONDS_FIELD_NUMBER: _ClassVar[int]
    job: str
    idle_seconds: float
    def __init__(self, job: _Optional[str] = ..., idle_seconds: _Optional[float] = ...) -> None: ...

class Assignment(_message.Message):
    __slots__ = ("job", "attempt", "worker", "num_workers", "spec_json", "stages", "num_stages", "total_steps", "data_service", "num_labels", "labels", "pad_token_id", "vocabulary_size", "pp_rank_by_stage", "layers_by_stage", "split_digests", "checkpoint", "weights")
    JOB_FIELD_NUMBER: _ClassVar[int]
    ATTEMPT_FIELD_NUMBER: _ClassVar[int]
    WORKER_FIELD_NUMBER: _ClassVar[int]
    NUM_WORKERS_FIELD_NUMBER: _ClassVar[int]
    SPEC_JSON_FIELD_NUMBER: _ClassVar[int]
    STAGES_FIELD_NUMBER: _ClassVar[int]
    NUM_STAGES_FIELD_NUMBER: _ClassVar[int]
    TOTAL_STEPS_FIELD_NUMBER: _ClassVar[int]
    DATA_SERVICE_FIELD_NUMBER: _ClassVar[int]
    NUM_LABELS_FIELD_NUMBER: _ClassVar[int]
    LABELS_FIELD_NUMBER: _ClassVar[int]
    PAD_TOKEN_ID_FIELD_NUMBER: _ClassVar[int]
    VOCABULARY_SIZE_FIELD_NUMBER: _ClassVar[int]
    PP_RANK_BY_STAGE_FIELD_NUMBER: _ClassVar[int]
    LAYERS_BY_STAGE_FIELD_NUMBER: _ClassVar[int]
    SPLIT_DIGESTS_FIELD_NUMBER: _ClassVar[int]
    CHECKPOINT_FIELD_NUMBER: _ClassVar[int]
    WEIGHTS_FIELD_NUMBER: _ClassVar[int]
    job: str
    attempt: int
    worker: int
    num_workers: int
    spec_json: str
    stages: _containers.RepeatedCompositeFieldContainer[StageSlice]
    num_stages: int
    total_steps: int
    data_service: str
    num_labels: int
    labels: _containers.RepeatedScalarFieldContainer[str]
    pad_token_id: int
    vocabulary_size: int
    pp_rank_by_stage: _containers.RepeatedScalarFieldContainer[int]
    layers_by_stage: _containers.RepeatedScalarFieldContainer[int]
    split_digests: _containers.RepeatedCompositeFieldContainer[SplitDigest]
    checkpoint: Checkpoint
    weights: str
    def __init__(self, job: _Optional[str] = ..., attempt: _Optional[int] = ..., worker: _Optional[int] = ..., num_workers: _Optional[int] = ..., spec_json: _Optional[str] = ..., stages: _Optional[_Iterable[_Union[StageSlice, _Mapping]]] = ..., num_stages: _Optional[int] = ..., total_steps: _Optional[int] = ..., data_service: _Optional[str] = ..., num_labels: _Optional[int] = ..., labels: _Optional[_Iterable[str]] = ..., pad_token_id: _Optional[int] = ..., vocabulary_size: _Optional[int] = ..., pp_rank_by_stage: _Optional[_Iterable[int]] = ..., layers_by_stage: _Optional[_Iterable[int]] = ..., split_digests: _Optional[_Iterable[_Union[SplitDigest, _Mapping]]] = ..., checkpoint: _Optional[_Union[Checkpoint, _Mapping]] = ..., weights: _Optional[str] = ...) -> None: ...

class Checkpoint(_message.Message):
    __slots__ = ("step", "parameters", "optimizer", "agreed")
    STEP_FIELD_NUMBER: _ClassVar[int]
    PARAMETERS_FIELD_NUMBER: _ClassVar[int]
    OPTIMIZER_FIELD_NUMBER: _ClassVar[int]
    AGREED_FIELD_NUMBER: _ClassVar[int]
    step: int
    parameters: _containers.RepeatedScalarFieldContainer[str]
    optimizer: _containers.RepeatedScalarFieldContainer[str]
    agreed: AgreedState
    def __init__(self, step: _Optional[int] = ..., parameters: _Optional[_Iterable[str]] = ..., optimizer: _Optional[_Iterable[str]] = ..., agreed: _Optional[_Union[AgreedState, _Mapping]] = ...) -> None: ...

class AgreedState(_message.Message):
    __slots__ = ("updates_applied", "loss_scale", "clean_steps")
    UPDATES_APPLIED_FIELD_NUMBER: _ClassVar[int]
    LOSS_SCALE_FIELD_NUMBER: _ClassVar[int]
    CLEAN_STEPS_FIELD_NUMBER: _ClassVar[int]
    updates_applied: int
    loss_scale: float
    clean_steps: int
    def __init__(self, updates_applied: _Optional[int] = ..., loss_scale: _Optional[float] = ..., clean_steps: _Optional[int] = ...) -> None: ...

class SplitDigest(_message.Message):
    __slots__ = ("split", "digest")
    SPLIT_FIELD_NUMBER: _ClassVar[int]
    DIGEST_FIELD_NUMBER: _ClassVar[int]
    split: str
    digest: str
    def __init__(self, split: _Optional[str] = ..., digest: _Optional[str] = ...) -> None: ...

class StageSlice(_message.Message):
    __slots__ = ("stage", "first_layer", "num_layers", "splits_backward")
    STAGE_FIELD_NUMBER: _ClassVar[int]
    FIRST_LAYER_FIELD_NUMBER: _ClassVar[int]
    NUM_LAYERS_FIELD_NUMBER: _ClassVar[int]
    SPLITS_BACKWARD_FIELD_NUMBER: _ClassVar[int]
    stage: int
    first_layer: int
    num_layers: int
    splits_backward: bool
    def __init__(self, stage: _Optional[int] = ..., first_layer: _Optional[int] = ..., num_layers: _Optional[int] = ..., splits_backward: bool = ...) -> None: ...

class Release(_message.Message):
    __slots__ = ("job", "attempt", "grace_seconds")
    JOB_FIELD_NUMBER: _ClassVar[int]
    ATTEMPT_FIELD_NUMBER: _ClassVar[int]
    GRACE_SECONDS_FIELD_NUMBER: _ClassVar[int]
    job: str
    attempt: int
    grace_seconds: float
    def __init__(self, job: _Optional[str] = ..., attempt: _Optional[int] = ..., grace_seconds: _Optional[float] = ...) -> None: ...

class ExecutorStarted(_message.Message):
    __slots__ = ("job", "attempt", "pid", "log")
    JOB_FIELD_NUMBER: _ClassVar[int]
    ATTEMPT_FIELD_NUMBER: _ClassVar[int]
    PID_FIELD_NUMBER: _ClassVar[int]
    LOG_FIELD_NUMBER: _ClassVar[int]
    job: str
    attempt: int
    pid: int
    log: str
    def __init__(self, job: _Optional[str] = ..., attempt: _Optional[int] = ..., pid: _Optional[int] = ..., log: _Optional[str] = ...) -> None: ...

class ExecutorEnded(_message.Message):
    __slots__ = ("job", "attempt", "cause", "exit_code", "signal", "message", "log_tail", "stage")
    JOB_FIELD_NUMBER: _ClassVar[int]
    ATTEMPT_FIELD_NUMBER: _ClassVar[int]
    CAUSE_FIELD_NUMBER: _ClassVar[int]
    EXIT_CODE_FIELD_NUMBER: _ClassVar[int]
    SIGNAL_FIELD_NUMBER: _ClassVar[int]
    MESSAGE_FIELD_NUMBER: _ClassVar[int]
    LOG_TAIL_FIELD_NUMBER: _ClassVar[int]
    STAGE_FIELD_NUMBER: _ClassVar[int]
    job: str
    attempt: int
    cause: EndCause
    exit_code: int
    signal: int
    message: str
    log_tail: str
    stage: int
    def __init__(self, job: _Optional[str] = ..., attempt: _Optional[int] = ..., cause: _Optional[_Union[EndCause, str]] = ..., exit_code: _Optional[int] = ..., signal: _Optional[int] = ..., message: _Optional[str] = ..., log_tail: _Optional[str] = ..., stage: _Optional[int] = ...) -> None: ...

class InspectModel(_message.Message):
    __slots__ = ("request", "spec_json", "parts")
    REQUEST_FIELD_NUMBER: _ClassVar[int]
    SPEC_JSON_FIELD_NUMBER: _ClassVar[int]
    PARTS_FIELD_NUMBER: _ClassVar[int]
    request: str
    spec_json: str
    parts: PartsQuestion
    def __init__(self, request: _Optional[str] = ..., spec_json: _Optional[str] = ..., parts: _Optional[_Union[PartsQuestion, _Mapping]] = ...) -> None: ...

class PartsQuestion(_message.Message):
    __slots__ = ("num_labels", "vocabulary_size", "pad_token_id")
    NUM_LABELS_FIELD_NUMBER: _ClassVar[int]
    VOCABULARY_SIZE_FIELD_NUMBER: _ClassVar[int]
    PAD_TOKEN_ID_FIELD_NUMBER: _ClassVar[int]
    num_labels: int
    vocabulary_size: int
    pad_token_id: int
    def __init__(self, num_labels: _Optional[int] = ..., vocabulary_size: _Optional[int] = ..., pad_token_id: _Optional[int] = ...) -> None: ...

class ModelInspected(_message.Message):
    __slots__ = ("request", "facts", "error")
    REQUEST_FIELD_NUMBER: _ClassVar[int]
    FACTS_FIELD_NUMBER: _ClassVar[int]
    ERROR_FIELD_NUMBER: _ClassVar[int]
    request: str
    facts: ModelFacts
    error: str
    def __init__(self, request: _Optional[str] = ..., facts: _Optional[_Union[ModelFacts, _Mapping]] = ..., error: _Optional[str] = ...) -> None: ...

class ModelFacts(_message.Message):
    __slots__ = ("model_type", "num_layers", "hidden_size", "max_positions", "vocabulary_size", "token_types", "labels", "pad_token_ids", "has_head", "parts")
    MODEL_TYPE_FIELD_NUMBER: _ClassVar[int]
    NUM_LAYERS_FIELD_NUMBER: _ClassVar[int]
    HIDDEN_SIZE_FIELD_NUMBER: _ClassVar[int]
    MAX_POSITIONS_FIELD_NUMBER: _ClassVar[int]
    VOCABULARY_SIZE_FIELD_NUMBER: _ClassVar[int]
    TOKEN_TYPES_FIELD_NUMBER: _ClassVar[int]
    LABELS_FIELD_NUMBER: _ClassVar[int]
    PAD_TOKEN_IDS_FIELD_NUMBER: _ClassVar[int]
    HAS_HEAD_FIELD_NUMBER: _ClassVar[int]
    PARTS_FIELD_NUMBER: _ClassVar[int]
    model_type: str
    num_layers: int
    hidden_size: int
    max_positions: int
    vocabulary_size: int
    token_types: int
    labels: _containers.RepeatedScalarFieldContainer[str]
    pad_token_ids: _containers.RepeatedScalarFieldContainer[int]
    has_head: bool
    parts: ModelParts
    def __init__(self, model_type: _Optional[str] = ..., num_layers: _Optional[int] = ..., hidden_size: _Optional[int] = ..., max_positions: _Optional[int] = ..., vocabulary_size: _Optional[int] = ..., token_types: _Optional[int] = ..., labels: _Optional[_Iterable[str]] = ..., pad_token_ids: _Optional[_Iterable[int]] = ..., has_head: bool = ..., parts: _Optional[_Union[ModelParts, _Mapping]] = ...) -> None: ...

class ModelParts(_message.Message):
    __slots__ = ("embeddings", "layer", "head", "stage", "shared")
    EMBEDDINGS_FIELD_NUMBER: _ClassVar[int]
    LAYER_FIELD_NUMBER: _ClassVar[int]
    HEAD_FIELD_NUMBER: _ClassVar[int]
    STAGE_FIELD_NUMBER: _ClassVar[int]
    SHARED_FIELD_NUMBER: _ClassVar[int]
    embeddings: ModelPart
    layer: ModelPart
    head: ModelPart
    stage: ModelPart
    shared: _containers.RepeatedCompositeFieldContainer[SharedParameters]
    def __init__(self, embeddings: _Optional[_Union[ModelPart, _Mapping]] = ..., layer: _Optional[_Union[ModelPart, _Mapping]] = ..., head: _Optional[_Union[ModelPart, _Mapping]] = ..., stage: _Optional[_Union[ModelPart, _Mapping]] = ..., shared: _Optional[_Iterable[_Union[SharedParameters, _Mapping]]] = ...) -> None: ...

class ModelPart(_message.Message):
    __slots__ = ("parameters", "tensors", "forward_operations", "activation_bytes", "waiting_bytes")
    PARAMETERS_FIELD_NUMBER: _ClassVar[int]
    TENSORS_FIELD_NUMBER: _ClassVar[int]
    FORWARD_OPERATIONS_FIELD_NUMBER: _ClassVar[int]
    ACTIVATION_BYTES_FIELD_NUMBER: _ClassVar[int]
    WAITING_BYTES_FIELD_NUMBER: _ClassVar[int]
    parameters: int
    tensors: int
    forward_operations: MicrobatchSize
    activation_bytes: MicrobatchSize
    waiting_bytes: MicrobatchSize
    def __init__(self, parameters: _Optional[int] = ..., tensors: _Optional[int] = ..., forward_operations: _Optional[_Union[MicrobatchSize, _Mapping]] = ..., activation_bytes: _Optional[_Union[MicrobatchSize, _Mapping]] = ..., waiting_bytes: _Optional[_Union[MicrobatchSize, _Mapping]] = ...) -> None: ...

class SharedParameters(_message.Message):
    __slots__ = ("parameters", "tensors", "blocks")
    PARAMETERS_FIELD_NUMBER: _ClassVar[int]
    TENSORS_FIELD_NUMBER: _ClassVar[int]
    BLOCKS_FIELD_NUMBER: _ClassVar[int]
    parameters: int
    tensors: int
    blocks: _containers.RepeatedScalarFieldContainer[int]
    def __init__(self, parameters: _Optional[int] = ..., tensors: _Optional[int] = ..., blocks: _Optional[_Iterable[int]] = ...) -> None: ...

class MicrobatchSize(_message.Message):
    __slots__ = ("fixed", "fixed_linear", "fixed_quadratic", "row", "row_linear", "row_quadratic")
    FIXED_FIELD_NUMBER: _ClassVar[int]
    FIXED_LINEAR_FIELD_NUMBER: _ClassVar[int]
    FIXED_QUADRATIC_FIELD_NUMBER: _ClassVar[int]
    ROW_FIELD_NUMBER: _ClassVar[int]
    ROW_LINEAR_FIELD_NUMBER: _ClassVar[int]
    ROW_QUADRATIC_FIELD_NUMBER: _ClassVar[int]
    fixed: float
    fixed_linear: float
    fixed_quadratic: float
    row: float
    row_linear: float
    row_quadratic: float
    def __init__(self, fixed: _Optional[float] = ..., fixed_linear: _Optional[float] = ..., fixed_quadratic: _Optional[float] = ..., row: _Optional[float] = ..., row_linear: _Optional[float] = ..., row_quadratic: _Optional[float] = ...) -> None: ...

class ExecuteRequest(_message.Message):
    __slots__ = ("hello", "store_opened", "ready", "done", "step", "rows", "saved", "failure", "number")
    HELLO_FIELD_NUMBER: _ClassVar[int]
    STORE_OPENED_FIELD_NUMBER: _ClassVar[int]
    READY_FIELD_NUMBER: _ClassVar[int]
    DONE_FIELD_NUMBER: _ClassVar[int]
    STEP_FIELD_NUMBER: _ClassVar[int]
    ROWS_FIELD_NUMBER: _ClassVar[int]
    SAVED_FIELD_NUMBER: _ClassVar[int]
    FAILURE_FIELD_NUMBER: _ClassVar[int]
    NUMBER_FIELD_NUMBER: _ClassVar[int]
    hello: ExecutorHello
    store_opened: StoreOpened
    ready: ExecutorReady
    done: CommandDone
    step: _commands_pb2.StepReport
    rows: EvaluationRows
    saved: ShardsSaved
    failure: ExecutorFailure
    number: int
    def __init__(self, hello: _Optional[_Union[ExecutorHello, _Mapping]] = ..., store_opened: _Optional[_Union[StoreOpened, _Mapping]] = ..., ready: _Optional[_Union[ExecutorReady, _Mapping]] = ..., done: _Optional[_Union[CommandDone, _Mapping]] = ..., step: _Optional[_Union[_commands_pb2.StepReport, _Mapping]] = ..., rows: _Optional[_Union[EvaluationRows, _Mapping]] = ..., saved: _Optional[_Union[ShardsSaved, _Mapping]] = ..., failure: _Optional[_Union[ExecutorFailure, _Mapping]] = ..., number: _Optional[int] = ...) -> None: ...

class ExecuteResponse(_message.Message):
    __slots__ = ("rendezvous", "commands", "clock_echo", "acknowledged")
    RENDEZVOUS_FIELD_NUMBER: _ClassVar[int]
    COMMANDS_FIELD_NUMBER: _ClassVar[int]
    CLOCK_ECHO_FIELD_NUMBER: _ClassVar[int]
    ACKNOWLEDGED_FIELD_NUMBER: _ClassVar[int]
    rendezvous: Rendezvous
    commands: _commands_pb2.StepCommands
    clock_echo: _commands_pb2.ClockEcho
    acknowledged: int
    def __init__(self, rendezvous: _Optional[_Union[Rendezvous, _Mapping]] = ..., commands: _Optional[_Union[_commands_pb2.StepCommands, _Mapping]] = ..., clock_echo: _Optional[_Union[_commands_pb2.ClockEcho, _Mapping]] = ..., acknowledged: _Optional[int] = ...) -> None: ...

class ExecutorHello(_message.Message):
    __slots__ = ("job", "attempt", "worker", "pid", "sent", "done_seq")
    JOB_FIELD_NUMBER: _ClassVar[int]
    ATTEMPT_FIELD_NUMBER: _ClassVar[int]
    WORKER_FIELD_NUMBER: _ClassVar[int]
    PID_FIELD_NUMBER: _ClassVar[int]
    SENT_FIELD_NUMBER: _ClassVar[int]
    DONE_SEQ_FIELD_NUMBER: _ClassVar[int]
    job: str
    attempt: int
    worker: int
    pid: int
    sent: float
    done_seq: int
    def __init__(self, job: _Optional[str] = ..., attempt: _Optional[int] = ..., worker: _Optional[int] = ..., pid: _Optional[int] = ..., sent: _Optional[float] = ..., done_seq: _Optional[int] = ...) -> None: ...

class StoreOpened(_message.Message):
    __slots__ = ("address",)
    ADDRESS_FIELD_NUMBER: _ClassVar[int]
    address: str
    def __init__(self, address: _Optional[str] = ...) -> None: ...

class Rendezvous(_message.Message):
    __slots__ = ("address",)
    ADDRESS_FIELD_NUMBER: _ClassVar[int]
    address: str
    def __init__(self, address: _Optional[str] = ...) -> None: ...

class ExecutorReady(_message.Message):
    __slots__ = ("parameters", "peak_bytes")
    PARAMETERS_FIELD_NUMBER: _ClassVar[int]
    PEAK_BYTES_FIELD_NUMBER: _ClassVar[int]
    parameters: int
    peak_bytes: int
    def __init__(self, parameters: _Optional[int] = ..., peak_bytes: _Optional[int] = ...) -> None: ...

class CommandDone(_message.Message):
    __slots__ = ("seq",)
    SEQ_FIELD_NUMBER: _ClassVar[int]
    seq: int
    def __init__(self, seq: _Optional[int] = ...) -> None: ...

class EvaluationRows(_message.Message):
    __slots__ = ("split", "step", "rows", "after")
    SPLIT_FIELD_NUMBER: _ClassVar[int]
    STEP_FIELD_NUMBER: _ClassVar[int]
    ROWS_FIELD_NUMBER: _ClassVar[int]
    AFTER_FIELD_NUMBER: _ClassVar[int]
    split: str
    step: int
    rows: _containers.RepeatedCompositeFieldContainer[EvaluationRow]
    after: int
    def __init__(self, split: _Optional[str] = ..., step: _Optional[int] = ..., rows: _Optional[_Iterable[_Union[EvaluationRow, _Mapping]]] = ..., after: _Optional[int] = ...) -> None: ...

class EvaluationRow(_message.Message):
    __slots__ = ("row_id", "outputs", "label")
    ROW_ID_FIELD_NUMBER: _ClassVar[int]
    OUTPUTS_FIELD_NUMBER: _ClassVar[int]
    LABEL_FIELD_NUMBER: _ClassVar[int]
    row_id: int
    outputs: _containers.RepeatedScalarFieldContainer[float]
    label: float
    def __init__(self, row_id: _Optional[int] = ..., outputs: _Optional[_Iterable[float]] = ..., label: _Optional[float] = ...) -> None: ...

class ShardsSaved(_message.Message):
    __slots__ = ("step", "shards", "error", "agreed", "seconds")
    STEP_FIELD_NUMBER: _ClassVar[int]
    SHARDS_FIELD_NUMBER: _ClassVar[int]
    ERROR_FIELD_NUMBER: _ClassVar[int]
    AGREED_FIELD_NUMBER: _ClassVar[int]
    SECONDS_FIELD_NUMBER: _ClassVar[int]
    step: int
    shards: _containers.RepeatedCompositeFieldContainer[Shard]
    error: str
    agreed: AgreedState
    seconds: float
    def __init__(self, step: _Optional[int] = ..., shards: _Optional[_Iterable[_Union[Shard, _Mapping]]] = ..., error: _Optional[str] = ..., agreed: _Optional[_Union[AgreedState, _Mapping]] = ..., seconds: _Optional[float] = ...) -> None: ...

class Shard(_message.Message):
    __slots__ = ("file", "kind", "stage", "sha256", "bytes")
    FILE_FIELD_NUMBER: _ClassVar[int]
    KIND_FIELD_NUMBER: _ClassVar[int]
    STAGE_FIELD_NUMBER: _ClassVar[int]
    SHA256_FIELD_NUMBER: _ClassVar[int]
    BYTES_FIELD_NUMBER: _ClassVar[int]
    file: str
    kind: str
    stage: int
    sha256: str
    bytes: int
    def __init__(self, file: _Optional[str] = ..., kind: _Optional[str] = ..., stage: _Optional[int] = ..., sha256: _Optional[str] = ..., bytes: _Optional[int] = ...) -> None: ...

class ExecutorFailure(_message.Message):
    __slots__ = ("step", "stage", "microbatch", "type", "message", "peer_lost")
    STEP_FIELD_NUMBER: _ClassVar[int]
    STAGE_FIELD_NUMBER: _ClassVar[int]
    MICROBATCH_FIELD_NUMBER: _ClassVar[int]
    TYPE_FIELD_NUMBER: _ClassVar[int]
    MESSAGE_FIELD_NUMBER: _ClassVar[int]
    PEER_LOST_FIELD_NUMBER: _ClassVar[int]
    step: int
    stage: int
    microbatch: int
    type: str
    message: str
    peer_lost: bool
    def __init__(self, step: _Optional[int] = ..., stage: _Optional[int] = ..., microbatch: _Optional[int] = ..., type: _Optional[str] = ..., message: _Optional[str] = ..., peer_lost: bool = ...) -> None: ...
