from takt.v1 import data_pb2 as _data_pb2
from takt.v1 import workers_pb2 as _workers_pb2
from google.protobuf.internal import containers as _containers
from google.protobuf.internal import enum_type_wrapper as _enum_type_wrapper
from google.protobuf import descriptor as _descriptor
from google.protobuf import message as _message
from collections.abc import Iterable as _Iterable, Mapping as _Mapping
from typing import ClassVar as _ClassVar, Optional as _Optional, Union as _Union

DESCRIPTOR: _descriptor.FileDescriptor

class JobState(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
    __slots__ = ()
    JOB_STATE_UNSPECIFIED: _ClassVar[JobState]
    JOB_STATE_QUEUED: _ClassVar[JobState]
    JOB_STATE_STARTING: _ClassVar[JobState]
    JOB_STATE_RUNNING: _ClassVar[JobState]
    JOB_STATE_RECOVERING: _ClassVar[JobState]
    JOB_STATE_CANCELLING: _ClassVar[JobState]
    JOB_STATE_SUCCEEDED: _ClassVar[JobState]
    JOB_STATE_FAILED: _ClassVar[JobState]
    JOB_STATE_CANCELLED: _ClassVar[JobState]
JOB_STATE_UNSPECIFIED: JobState
JOB_STATE_QUEUED: JobState
JOB_STATE_STARTING: JobState
JOB_STATE_RUNNING: JobState
JOB_STATE_RECOVERING: JobState
JOB_STATE_CANCELLING: JobState
JOB_STATE_SUCCEEDED: JobState
JOB_STATE_FAILED: JobState
JOB_STATE_CANCELLED: JobState

class Job(_message.Message):
    __slots__ = ("id", "name", "state", "reason", "attempt", "step", "total_steps", "epoch", "loss", "examples_per_second", "eta_seconds", "created", "started", "ended", "workers", "missing_slots", "error", "history", "plan_bubble_fraction", "skipped_steps", "priority", "start_step")
    ID_FIELD_NUMBER: _ClassVar[int]
    NAME_FIELD_NUMBER: _ClassVar[int]
    STATE_FIELD_NUMBER: _ClassVar[int]
    REASON_FIELD_NUMBER: _ClassVar[int]
    ATTEMPT_FIELD_NUMBER: _ClassVar[int]
    STEP_FIELD_NUMBER: _ClassVar[int]
    TOTAL_STEPS_FIELD_NUMBER: _ClassVar[int]
    EPOCH_FIELD_NUMBER: _ClassVar[int]
    LOSS_FIELD_NUMBER: _ClassVar[int]
    EXAMPLES_PER_SECOND_FIELD_NUMBER: _ClassVar[int]
    ETA_SECONDS_FIELD_NUMBER: _ClassVar[int]
    CREATED_FIELD_NUMBER: _ClassVar[int]
    STARTED_FIELD_NUMBER: _ClassVar[int]
    ENDED_FIELD_NUMBER: _ClassVar[int]
    WORKERS_FIELD_NUMBER: _ClassVar[int]
    MISSING_SLOTS_FIELD_NUMBER: _ClassVar[int]
    ERROR_FIELD_NUMBER: _ClassVar[int]
    HISTORY_FIELD_NUMBER: _ClassVar[int]
    PLAN_BUBBLE_FRACTION_FIELD_NUMBER: _ClassVar[int]
    SKIPPED_STEPS_FIELD_NUMBER: _ClassVar[int]
    PRIORITY_FIELD_NUMBER: _ClassVar[int]
    START_STEP_FIELD_NUMBER: _ClassVar[int]
    id: str
    name: str
    state: JobState
    reason: str
    attempt: int
    step: int
    total_steps: int
    epoch: int
    loss: float
    examples_per_second: float
    eta_seconds: float
    created: float
    started: float
    ended: float
    workers: _containers.RepeatedCompositeFieldContainer[JobWorker]
    missing_slots: int
    error: JobError
    history: _containers.RepeatedCompositeFieldContainer[StateChange]
    plan_bubble_fraction: float
    skipped_steps: int
    priority: int
    start_step: int
    def __init__(self, id: _Optional[str] = ..., name: _Optional[str] = ..., state: _Optional[_Union[JobState, str]] = ..., reason: _Optional[str] = ..., attempt: _Optional[int] = ..., step: _Optional[int] = ..., total_steps: _Optional[int] = ..., epoch: _Optional[int] = ..., loss: _Optional[float] = ..., examples_per_second: _Optional[float] = ..., eta_seconds: _Optional[float] = ..., created: _Optional[float] = ..., started: _Optional[float] = ..., ended: _Optional[float] = ..., workers: _Optional[_Iterable[_Union[JobWorker, _Mapping]]] = ..., missing_slots: _Optional[int] = ..., error: _Optional[_Union[JobError, _Mapping]] = ..., history: _Optional[_Iterable[_Union[StateChange, _Mapping]]] = ..., plan_bubble_fraction: _Optional[float] = ..., skipped_steps: _Optional[int] = ..., priority: _Optional[int] = ..., start_step: _Optional[int] = ...) -> None: ...

class JobWorker(_message.Message):
    __slots__ = ("worker", "stages", "dp_rank", "host", "pid", "state", "parameters", "peak_bytes", "last_progress", "busy_seconds", "idle_seconds", "stage_busy_seconds")
    WORKER_FIELD_NUMBER: _ClassVar[int]
    STAGES_FIELD_NUMBER: _ClassVar[int]
    DP_RANK_FIELD_NUMBER: _ClassVar[int]
    HOST_FIELD_NUMBER: _ClassVar[int]
    PID_FIELD_NUMBER: _ClassVar[int]
    STATE_FIELD_NUMBER: _ClassVar[int]
    PARAMETERS_FIELD_NUMBER: _ClassVar[int]
    PEAK_BYTES_FIELD_NUMBER: _ClassVar[int]
    LAST_PROGRESS_FIELD_NUMBER: _ClassVar[int]
    BUSY_SECONDS_FIELD_NUMBER: _ClassVar[int]
    IDLE_SECONDS_FIELD_NUMBER: _ClassVar[int]
    STAGE_BUSY_SECONDS_FIELD_NUMBER: _ClassVar[int]
    worker: int
    stages: _containers.RepeatedScalarFieldContainer[int]
    dp_rank: int
    host: str
    pid: int
    state: str
    parameters: int
    peak_bytes: int
    last_progress: float
    busy_seconds: float
    idle_seconds: float
    stage_busy_seconds: _containers.RepeatedScalarFieldContainer[float]
    def __init__(self, worker: _Optional[int] = ..., stages: _Optional[_Iterable[int]] = ..., dp_rank: _Optional[int] = ..., host: _Optional[str] = ..., pid: _Optional[int] = ..., state: _Optional[str] = ..., parameters: _Optional[int] = ..., peak_bytes: _Optional[int] = ..., last_progress: _Optional[float] = ..., busy_seconds: _Optional[float] = ..., idle_seconds: _Optional[float] = ..., stage_busy_seconds: _Optional[_Iterable[float]] = ...) -> None: ...

class JobError(_message.Message):
    __slots__ = ("worker", "stage", "step", "type", "message", "log")
    WORKER_FIELD_NUMBER: _ClassVar[int]
    STAGE_FIELD_NUMBER: _ClassVar[int]
    STEP_FIELD_NUMBER: _ClassVar[int]
    TYPE_FIELD_NUMBER: _ClassVar[int]
    MESSAGE_FIELD_NUMBER: _ClassVar[int]
    LOG_FIELD_NUMBER: _ClassVar[int]
    worker: int
    stage: int
    step: int
    type: str
    message: str
    log: str
    def __init__(self, worker: _Optional[int] = ..., stage: _Optional[int] = ..., step: _Optional[int] = ..., type: _Optional[str] = ..., message: _Optional[str] = ..., log: _Optional[str] = ...) -> None: ...

class StateChange(_message.Message):
    __slots__ = ("state", "reason", "attempt", "step", "time")
    STATE_FIELD_NUMBER: _ClassVar[int]
    REASON_FIELD_NUMBER: _ClassVar[int]
    ATTEMPT_FIELD_NUMBER: _ClassVar[int]
    STEP_FIELD_NUMBER: _ClassVar[int]
    TIME_FIELD_NUMBER: _ClassVar[int]
    state: JobState
    reason: str
    attempt: int
    step: int
    time: float
    def __init__(self, state: _Optional[_Union[JobState, str]] = ..., reason: _Optional[str] = ..., attempt: _Optional[int] = ..., step: _Optional[int] = ..., time: _Optional[float] = ...) -> None: ...

class SubmitJobRequest(_message.Message):
    __slots__ = ("id", "spec_json", "model", "data", "priority")
    ID_FIELD_NUMBER: _ClassVar[int]
    SPEC_JSON_FIELD_NUMBER: _ClassVar[int]
    MODEL_FIELD_NUMBER: _ClassVar[int]
    DATA_FIELD_NUMBER: _ClassVar[int]
    PRIORITY_FIELD_NUMBER: _ClassVar[int]
    id: str
    spec_json: str
    model: _workers_pb2.ModelFacts
    data: _data_pb2.DataFacts
    priority: int
    def __init__(self, id: _Optional[str] = ..., spec_json: _Optional[str] = ..., model: _Optional[_Union[_workers_pb2.ModelFacts, _Mapping]] = ..., data: _Optional[_Union[_data_pb2.DataFacts, _Mapping]] = ..., priority: _Optional[int] = ...) -> None: ...

class SubmitJobResponse(_message.Message):
    __slots__ = ("job",)
    JOB_FIELD_NUMBER: _ClassVar[int]
    job: Job
    def __init__(self, job: _Optional[_Union[Job, _Mapping]] = ...) -> None: ...

class GetJobRequest(_message.Message):
    __slots__ = ("id",)
    ID_FIELD_NUMBER: _ClassVar[int]
    id: str
    def __init__(self, id: _Optional[str] = ...) -> None: ...

class GetJobResponse(_message.Message):
    __slots__ = ("job",)
    JOB_FIELD_NUMBER: _ClassVar[int]
    job: Job
    def __init__(self, job: _Optional[_Union[Job, _Mapping]] = ...) -> None: ...

class ListJobsRequest(_message.Message):
    __slots__ = ("states", "prefix", "page_size", "page_token")
    STATES_FIELD_NUMBER: _ClassVar[int]
    PREFIX_FIELD_NUMBER: _ClassVar[int]
    PAGE_SIZE_FIELD_NUMBER: _ClassVar[int]
    PAGE_TOKEN_FIELD_NUMBER: _ClassVar[int]
    states: _containers.RepeatedScalarFieldContainer[JobState]
    prefix: str
    page_size: int
    page_token: str
    def __init__(self, states: _Optional[_Iterable[_Union[JobState, str]]] = ..., prefix: _Optional[str] = ..., page_size: _Optional[int] = ..., page_token: _Optional[str] = ...) -> None: ...

class ListJobsResponse(_message.Message):
    __slots__ = ("jobs", "next_page_token")
    JOBS_FIELD_NUMBER: _ClassVar[int]
    NEXT_PAGE_TOKEN_FIELD_NUMBER: _ClassVar[int]
    jobs: _containers.RepeatedCompositeFieldContainer[Job]
    next_page_token: str
    def __init__(self, jobs: _Optional[_Iterable[_Union[Job, _Mapping]]] = ..., next_page_token: _Optional[str] = ...) -> None: ...

class CancelJobRequest(_message.Message):
    __slots__ = ("id", "grace_seconds")
    ID_FIELD_NUMBER: _ClassVar[int]
    GRACE_SECONDS_FIELD_NUMBER: _ClassVar[int]
    id: str
    grace_seconds: float
    def __init__(self, id: _Optional[str] = ..., grace_seconds: _Optional[float] = ...) -> None: ...

class CancelJobResponse(_message.Message):
    __slots__ = ("job",)
    JOB_FIELD_NUMBER: _ClassVar[int]
    job: Job
    def __init__(self, job: _Optional[_Union[Job, _Mapping]] = ...) -> None: ...

class ReadLogsRequest(_message.Message):
    __slots__ = ("id", "stage", "tail", "follow", "positions")
    ID_FIELD_NUMBER: _ClassVar[int]
    STAGE_FIELD_NUMBER: _ClassVar[int]
    TAIL_FIELD_NUMBER: _ClassVar[int]
    FOLLOW_FIELD_NUMBER: _ClassVar[int]
    POSITIONS_FIELD_NUMBER: _ClassVar[int]
    id: str
    stage: int
    tail: int
    follow: bool
    positions: _containers.RepeatedCompositeFieldContainer[LogPosition]
    def __init__(self, id: _Optional[str] = ..., stage: _Optional[int] = ..., tail: _Optional[int] = ..., follow: bool = ..., positions: _Optional[_Iterable[_Union[LogPosition, _Mapping]]] = ...) -> None: ...

class LogPosition(_message.Message):
    __slots__ = ("worker", "offset")
    WORKER_FIELD_NUMBER: _ClassVar[int]
    OFFSET_FIELD_NUMBER: _ClassVar[int]
    worker: int
    offset: int
    def __init__(self, worker: _Optional[int] = ..., offset: _Optional[int] = ...) -> None: ...

class ReadLogsResponse(_message.Message):
    __slots__ = ("worker", "line", "end")
    WORKER_FIELD_NUMBER: _ClassVar[int]
    LINE_FIELD_NUMBER: _ClassVar[int]
    END_FIELD_NUMBER: _ClassVar[int]
    worker: int
    line: str
    end: int
    def __init__(self, worker: _Optional[int] = ..., line: _Optional[str] = ..., end: _Optional[int] = ...) -> None: ...

class ListWorkersRequest(_message.Message):
    __slots__ = ()
    def __init__(self) -> None: ...

class ListWorkersResponse(_message.Message):
    __slots__ = ("slots",)
    SLOTS_FIELD_NUMBER: _ClassVar[int]
    slots: _containers.RepeatedCompositeFieldContainer[Slot]
    def __init__(self, slots: _Optional[_Iterable[_Union[Slot, _Mapping]]] = ...) -> None: ...

class Slot(_message.Message):
    __slots__ = ("host", "slot", "device", "pid", "state", "job", "worker", "stages", "parameters", "metrics_address", "last_heartbeat")
    HOST_FIELD_NUMBER: _ClassVar[int]
    SLOT_FIELD_NUMBER: _ClassVar[int]
    DEVICE_FIELD_NUMBER: _ClassVar[int]
    PID_FIELD_NUMBER: _ClassVar[int]
    STATE_FIELD_NUMBER: _ClassVar[int]
    JOB_FIELD_NUMBER: _ClassVar[int]
    WORKER_FIELD_NUMBER: _ClassVar[int]
    STAGES_FIELD_NUMBER: _ClassVar[int]
    PARAMETERS_FIELD_NUMBER: _ClassVar[int]
    METRICS_ADDRESS_FIELD_NUMBER: _ClassVar[int]
    LAST_HEARTBEAT_FIELD_NUMBER: _ClassVar[int]
    host: str
    slot: int
    device: str
    pid: int
    state: str
    job: str
    worker: int
    stages: _containers.RepeatedScalarFieldContainer[int]
    parameters: int
    metrics_address: str
    last_heartbeat: float
    def __init__(self, host: _Optional[str] = ..., slot: _Optional[int] = ..., device: _Optional[str] = ..., pid: _Optional[int] = ..., state: _Optional[str] = ..., job: _Optional[str] = ..., worker: _Optional[int] = ..., stages: _Optional[_Iterable[int]] = ..., parameters: _Optional[int] = ..., metrics_address: _Optional[str] = ..., last_heartbeat: _Optional[float] = ...) -> None: ...
