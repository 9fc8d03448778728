"""The schema of a job: sections, keys, types, ranges, defaults and what each key means."""

from typing import Annotated

from pydantic import BaseModel, ConfigDict, Field, JsonValue

from coordinator import byte_size, choices

Size = Annotated[int, Field(ge=1, le=2**31 - 1)]
"""How many there are of something that there must be at least one of."""
Size64 = Annotated[int, Field(ge=1, le=2**63 - 1)]
"""The same of what there may be very many of."""
Number = Annotated[int, Field(ge=0, le=2**31 - 1)]
"""How many there are of something that there may be none of."""
Share = Annotated[float, Field(ge=0, le=1)]
"""A part of a whole."""
Place = Annotated[str, Field(min_length=1, max_length=4096)]
"""A folder or a Hub id."""
MAX_PLAN_BYTES = 2**24
"""Size limit of the text of a custom plan."""
MAX_COSTS_BYTES = 2**24
"""Size limit of the text of measured costs."""


class Section(BaseModel):
    """Rules for every section: frozen, exact types, no unknown key, no infinity."""

    model_config = ConfigDict(
        frozen=True, strict=True, extra="forbid", allow_inf_nan=False, use_attribute_docstrings=True
    )


class ModelSection(Section):
    """The model: exactly one of `pretrained` and `config`."""

    pretrained: Place | None = None
    """Folder in the Hugging Face layout (config.json, *.safetensors), or a Hub id."""
    config: dict[str, JsonValue] | None = None
    """Model built from scratch: the keys of a Hugging Face config, `model_type` among them."""
    attention: choices.Attention = choices.Attention.SDPA
    """How attention is computed."""


class DataSection(Section):
    """The rows that the model learns from."""

    task: choices.Task
    """GLUE task, or demo: a generated task that needs no file."""
    source: Place = "hub"
    """Folder in the official GLUE layout (SOURCE/SST-2/train.tsv), or hub; not used by demo."""
    tokenizer: Place | None = None
    """Folder or Hub id of the tokenizer; null: that of model.pretrained, for demo a built-in one."""
    max_length: Size = 128
    """Tokens that a row is cut to, special tokens included."""
    padding: choices.Padding = choices.Padding.LONGEST
    """What the rows of a microbatch are padded to."""
    microbatching: choices.Microbatching = choices.Microbatching.IN_ORDER
    """How the rows of a global batch are put into microbatches."""
    shuffle: bool = True
    """Whether every epoch has an order of its own."""
    drop_last: bool = False
    """Whether the last, smaller global batch of an epoch is left out."""
    max_train_rows: Size | None = None
    """Train on this many rows from the start of the file; null: on all."""
    malformed_lines: choices.MalformedLines = choices.MalformedLines.REFUSE
    """What is done with lines of a file that do not fit it."""
    record_rows: bool = False
    """Whether steps.jsonl tells the row ids of every microbatch."""


class ParallelSection(Section):
    """How the model and the rows are spread over workers; pp x dp x tp of them are needed."""

    pp: Annotated[int, Field(ge=1, le=4096)] = 2
    """Pipeline workers of one replica."""
    dp: Annotated[int, Field(ge=1, le=4096)] = 1
    """Replicas, each with its own share of the rows."""
    tp: Annotated[int, Field(ge=1, le=4096)] = 1
    """Workers that share every layer."""
    zero_stage: Annotated[int, Field(ge=0, le=3)] = 0
    """0: every replica holds the whole optimizer state; 1: replicas share it."""
    partition: choices.PartitionMethod = choices.PartitionMethod.EVEN
    """How layers are shared out over stages."""
    layers_per_stage: tuple[Size, ...] | None = None
    """Layers of each stage, stage 0 first; null: by `partition`."""
    costs: Annotated[str, Field(min_length=1, max_length=MAX_COSTS_BYTES)] | None = None
    """File of what `takt profile` measured, by which steps are predicted and a schedule or a partition is chosen; in
    spec.json the text of that file. null: by what the model's config lets expect."""


class ScheduleSection(Section):
    """The order of work in a step."""

    name: choices.ScheduleName = choices.ScheduleName.ONE_F_ONE_B
    """Schedule."""
    warmup: choices.Warmup | tuple[Number, ...] | None = None
    """1f1b: forwards before the first backward, a list of one number a stage; null: P-1-s; eager: 2(P-1-s)."""
    num_chunks: Annotated[int, Field(ge=1, le=64)] = 1
    """Model chunks (virtual stages) on each worker."""
    group_size: Size | None = None
    """interleaved: microbatches that pass a chunk before the next chunk's turn; null: P."""
    num_microbatches: Annotated[int, Field(ge=1, le=2**16)] | None = 8
    """Microbatches of one replica in one accumulation slice; null where microbatch_size is given."""
    microbatch_size: Size | None = None
    """Most rows of a microbatch; another way to say num_microbatches."""
    file: Annotated[str, Field(min_length=1, max_length=MAX_PLAN_BYTES)] | None = None
    """custom: file of a plan of the whole step as CSV, one line a worker; in spec.json the text of that file."""


class LossScaleSection(Section):
    """Loss scaling, used by fp16 only."""

    initial: Annotated[float, Field(gt=0)] = 65536.0
    """Factor of the first step."""
    growth_factor: Annotated[float, Field(ge=1)] = 2.0
    """What the factor is multiplied by after `growth_interval` clean steps."""
    backoff_factor: Annotated[float, Field(gt=0, lt=1)] = 0.5
    """What the factor is multiplied by after an overflow."""
    growth_interval: Size = 1000
    """Steps without overflow before the factor grows."""
    min: Annotated[float, Field(gt=0)] = 1.0
    """Lower bound of the factor."""
    max: Annotated[float, Field(gt=0)] = 4294967296.0
    """Upper bound of the factor."""


class TrainSection(Section):
    """How the weights change: exactly one of `epochs` and `max_steps` says for how long."""

    epochs: Size | None = 3
    """Passes over the training rows; null where max_steps is given."""
    max_steps: Size | None = None
    """Optimizer steps, over as many epochs as they take; null: by `epochs`."""
    global_batch_size: Annotated[int, Field(ge=1, le=2**24)] = 32
    """Rows of one step, over all replicas and accumulation slices."""
    gradient_accumulation_steps: Annotated[int, Field(ge=1, le=2**16)] = 1
    """Slices that a step's rows are worked through in, one after the other."""
    optimizer: choices.OptimizerName = choices.OptimizerName.ADAMW
    """Optimizer."""
    learning_rate: Annotated[float, Field(ge=0)] = 2.4e-5
    """Peak learning rate."""
    weight_decay: Annotated[float, Field(ge=0)] = 0.01
    """Decoupled weight decay; never on biases and LayerNorm weights."""
    warmup_fraction: Annotated[float, Field(ge=0, lt=1)] = 0.1
    """linear: part of the steps over which the learning rate rises from 0."""
    lr_schedule: choices.LearningRateSchedule = choices.LearningRateSchedule.LINEAR
    """Learning rate over the job: rising to its peak and falling to 0 in straight lines, or constant throughout."""
    max_grad_norm: Annotated[float, Field(ge=0)] = 0.0
    """Norm that the gradient is clipped to; 0: no clipping."""
    frozen_layers: Number | None = None
    """Layers from the input on that stay as they are, and the embeddings with them; null: everything is trained. A
    weight that one of these uses stays as it is wherever else it is used: a tied embedding, all of ALBERT's layers."""
    precision: choices.Precision = choices.Precision.FP32
    """Element type that the layers compute in."""
    boundary_dtype: choices.BoundaryType = choices.BoundaryType.COMPUTE
    """Element type that travels between stages."""
    loss_scale: LossScaleSection = LossScaleSection()
    """Loss scaling, used by fp16 only."""
    recompute: choices.Recompute | Number | tuple[Number, ...] = choices.Recompute.NONE
    """What each stage computes again in its backward instead of keeping it: none; full: all of it; except_last: all
    of it for every microbatch of a step but the last; a number: so many of its layers from its input on, at most all
    of them; a list: one such number a stage. Stage 0 counts the embeddings to its first layer."""
    objective: choices.Objective = choices.Objective.CLASSIFICATION
    """What the loss is taken of: the task's labels, or tokens of its sentences."""
    mlm_probability: Share = 0.15
    """masked_lm: part of a row's tokens that is to be predicted, more than 0."""
    seed: Annotated[int, Field(ge=0, le=2**63 - 1)] = 42
    """What everything random follows from."""


class EvalSection(Section):
    """Evaluation on the validation split."""

    every_steps: Size | None = None
    """Steps between evaluations; null: none while training."""
    batch_size: Annotated[int, Field(ge=1, le=2**24)] = 64
    """Rows of one evaluation step, over all replicas."""
    at_end: bool = True
    """Whether the trained model is evaluated."""


class CheckpointSection(Section):
    """What is saved; a final checkpoint always is."""

    every_steps: Size | None = None
    """Steps between checkpoints; null: chosen by the coordinator."""
    keep: Size = 2
    """Newest checkpoints that are kept."""
    resume: choices.Resume = choices.Resume.AUTO
    """What a job does with checkpoints that its id already has: auto continues from the last."""
    from_: Annotated[Place | None, Field(alias="from")] = None
    """Start from another job's state: JOB_ID, JOB_ID@STEP or a folder; null: from model.pretrained."""
    snapshot_steps: Size | None = None
    """Steps between snapshots in memory; null: as often as 2 % of the time allows."""


class PredictSection(Section):
    """Predictions instead of training, by a model that has learnt the task."""

    split: choices.SplitName | None = None
    """Rows to predict, as predictions-SPLIT.tsv in the form of GLUE's submissions; null trains."""


class LimitsSection(Section):
    """What is borne before a job is given up."""

    max_restarts: Number = 3
    """Attempts after the first."""
    step_timeout_seconds: Annotated[float, Field(gt=0)] = 300.0
    """Seconds that one command may compute before its worker counts as stuck."""
    lease_seconds: Annotated[float, Field(ge=1)] = 10.0
    """Seconds without a sign of life before a worker counts as lost."""
    device_memory_bytes: Size64 | Annotated[str, Field(pattern=byte_size.PATTERN, examples=["16GiB"])] | None = None
    """Most memory that a worker may need by prediction, in bytes or as text such as 16GiB; null: not looked at. It
    is for the tensors that training keeps, as `takt plan` shows them; kernels and libraries need some more."""


class JobSpec(Section):
    """A Takt job. `name`, `model` and `data.task` are required; every other key has the default that is shown."""

    name: Annotated[str, Field(pattern=r"^[A-Za-z0-9._-]{1,63}$")]
    """Name of the job: letters, digits, '-', '_' and '.', at most 63; ids that are made up begin with it."""
    model: ModelSection
    """The model: exactly one of `pretrained` and `config`."""
    data: DataSection
    """The rows that the model learns from."""
    parallel: ParallelSection = ParallelSection()
    """How the model and the rows are spread over workers; pp x dp x tp of them are needed."""
    schedule: ScheduleSection = ScheduleSection()
    """The order of work in a step."""
    train: TrainSection = TrainSection()
    """How the weights change: exactly one of `epochs` and `max_steps` says for how long."""
    eval: EvalSection = EvalSection()
    """Evaluation on the validation split."""
    checkpoint: CheckpointSection = CheckpointSection()
    """What is saved; a final checkpoint always is."""
    predict: PredictSection = PredictSection()
    """Predictions instead of training; `takt predict` makes such a job of one that has trained."""
    limits: LimitsSection = LimitsSection()
    """What is borne before a job is given up."""
