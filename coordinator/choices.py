"""The closed sets of the job file. What of them is built says `coordinator.built`."""

import enum


class Task(enum.StrEnum):
    """What the model learns: a GLUE task, or the built-in demo."""

    COLA = "cola"
    SST2 = "sst2"
    MRPC = "mrpc"
    QQP = "qqp"
    STSB = "stsb"
    MNLI = "mnli"
    QNLI = "qnli"
    RTE = "rte"
    WNLI = "wnli"
    AX = "ax"
    DEMO = "demo"


class SplitName(enum.StrEnum):
    """The splits that GLUE tasks have."""

    TRAIN = "train"
    VALIDATION = "validation"
    VALIDATION_MATCHED = "validation_matched"
    VALIDATION_MISMATCHED = "validation_mismatched"
    TEST = "test"
    TEST_MATCHED = "test_matched"
    TEST_MISMATCHED = "test_mismatched"
    AX = "ax"


class Attention(enum.StrEnum):
    """How attention is computed."""

    SDPA = "sdpa"
    EAGER = "eager"


class Padding(enum.StrEnum):
    """What a row is padded to: the longest of its microbatch, or data.max_length."""

    LONGEST = "longest"
    MAX_LENGTH = "max_length"


class Microbatching(enum.StrEnum):
    """How the rows of one global batch are put into microbatches."""

    IN_ORDER = "in_order"
    LENGTH_BALANCED = "length_balanced"


class MalformedLines(enum.StrEnum):
    """What is done with lines of a file that do not fit it; those that are left out are counted and told."""

    REFUSE = "refuse"
    SKIP = "skip"


class PartitionMethod(enum.StrEnum):
    """How layers are shared out over stages."""

    EVEN = "even"
    BALANCED = "balanced"


class ScheduleName(enum.StrEnum):
    """The order in which a stage works through its microbatches."""

    NAIVE = "naive"
    GPIPE = "gpipe"
    ONE_F_ONE_B = "1f1b"
    INTERLEAVED = "interleaved"
    LOOPED_BFS = "looped_bfs"
    ZBH1 = "zbh1"
    ZBH2 = "zbh2"
    ZBV = "zbv"
    DUALPIPEV = "dualpipev"
    PIPEDREAM = "pipedream"
    PIPEDREAM_2BW = "pipedream_2bw"
    CUSTOM = "custom"
    AUTO = "auto"


class Warmup(enum.StrEnum):
    """Named warm-ups of 1f1b."""

    EAGER = "eager"


class OptimizerName(enum.StrEnum):
    """The optimizer."""

    ADAMW = "adamw"
    SGD = "sgd"


class LearningRateSchedule(enum.StrEnum):
    """The learning rate over the job."""

    LINEAR = "linear"
    CONSTANT = "constant"


class Precision(enum.StrEnum):
    """Element type that the layers compute in."""

    FP32 = "fp32"
    BF16 = "bf16"
    FP16 = "fp16"


class BoundaryType(enum.StrEnum):
    """Element type that travels between stages."""

    COMPUTE = "compute"
    FP32 = "fp32"


class Recompute(enum.StrEnum):
    """Whose activations are computed again in the backward pass."""

    NONE = "none"
    FULL = "full"
    EXCEPT_LAST = "except_last"


class Objective(enum.StrEnum):
    """What the loss is taken of."""

    CLASSIFICATION = "classification"
    MASKED_LM = "masked_lm"
    CAUSAL_LM = "causal_lm"

    @property
    def is_token_level(self) -> bool:
        """Whether tokens are predicted, so that the text is its own label."""
        return self is not Objective.CLASSIFICATION


class Resume(enum.StrEnum):
    """What a job does with checkpoints that its id already has."""

    AUTO = "auto"
