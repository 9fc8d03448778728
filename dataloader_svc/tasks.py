"""The tasks that are built: where their rows lie and what their labels mean.

Files and columns are those of the official GLUE download; label names are in the order of its label ids.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType

from dataloader_svc.errors import SpecError
from dataloader_svc.splits import SplitName

LARGEST_SCORE = 5.0
"""Of STS-B, the one task whose labels are numbers; the least is 0."""
_TRAIN, _VALIDATION, _TEST = SplitName.TRAIN, SplitName.VALIDATION, SplitName.TEST


@dataclass(frozen=True, slots=True, kw_only=True)
class GlueFile:
    """One file of a task."""

    name: str
    text_columns: tuple[str, ...]
    """Header names of the sentence, or of the two sentences of a pair."""
    label_column: str | None
    """Header name of the label; None where the file has none."""
    columns: tuple[str, ...] | None = None
    """Names of the columns of a file without a header."""


@dataclass(frozen=True, slots=True, kw_only=True)
class GlueLayout:
    """Where a task's rows lie in the official GLUE folder layout."""

    folder: str
    """Folder of the task below the data source."""
    files: Mapping[SplitName, GlueFile]
    """In the order of the splits."""
    label_values: tuple[str, ...]
    """How a file writes each label, in the order of their ids; empty where labels are numbers."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Task:
    """One task over single sentences or pairs of them."""

    name: str
    """As in ``data.task``."""
    labels: tuple[str, ...]
    """Label names in the order of their ids; empty where a number is predicted."""
    layout: GlueLayout | None
    """Where its files lie; None for the built-in task, which is generated."""
    hub_texts: tuple[str, ...] = ()
    """Columns of the sentence, or of the two sentences of a pair, in the data set on the Hub."""

    @property
    def is_regression(self) -> bool:
        """Whether a number is predicted of a row, rather than a class."""
        return not self.labels

    @property
    def num_texts(self) -> int:
        """Sentences of one row: 1, or 2 for a pair."""
        return 1 if self.layout is None else len(next(iter(self.layout.files.values())).text_columns)

    def written(self, label: str) -> str:
        """Return how files write a label; the built-in task's are written as ids."""
        index = self.labels.index(label)
        return str(index) if self.layout is None else self.layout.label_values[index]

    @property
    def splits(self) -> tuple[SplitName, ...]:
        """Splits that the task may have."""
        return (_TRAIN, _VALIDATION, _TEST) if self.layout is None else tuple(self.layout.files)


def _with_header(texts: tuple[str, ...], label: str) -> Mapping[SplitName, GlueFile]:
    """Return the files of most tasks: the test file has the same columns but no label."""
    return {
        _TRAIN: GlueFile(name="train.tsv", text_columns=texts, label_column=label),
        _VALIDATION: GlueFile(name="dev.tsv", text_columns=texts, label_column=label),
        _TEST: GlueFile(name="test.tsv", text_columns=texts, label_column=None),
    }


def _task(
    name: str,
    folder: str,
    files: Mapping[SplitName, GlueFile],
    labels: tuple[str, ...],
    *,
    label_values: tuple[str, ...] | None = None,
    hub_texts: tuple[str, ...] | None = None,
) -> Task:
    """Return a task whose files write labels as ``label_values``, or as ids; columns are the Hub's where not given."""
    values = tuple(map(str, range(len(labels)))) if label_values is None else label_values
    layout = GlueLayout(folder=folder, files=files, label_values=values)
    return Task(name=name, labels=labels, layout=layout, hub_texts=hub_texts or files[next(iter(files))].text_columns)


def _cola_file(name: str) -> GlueFile:
    """Return a labelled file of CoLA, which has no header."""
    columns = ("source", "label", "star", "sentence")
    return GlueFile(name=name, text_columns=("sentence",), label_column="label", columns=columns)


_PAIR = ("sentence1", "sentence2")
_INFERENCE = ("entailment", "neutral", "contradiction")
_YES_NO_INFERENCE = ("entailment", "not_entailment")

DEMO = Task(name="demo", labels=("negative", "positive"), layout=None)
COLA = _task(
    "cola",
    "CoLA",
    {
        _TRAIN: _cola_file("train.tsv"),
        _VALIDATION: _cola_file("dev.tsv"),
        _TEST: GlueFile(name="test.tsv", text_columns=("sentence",), label_column=None),
    },
    ("unacceptable", "acceptable"),
)
SST2 = _task("sst2", "SST-2", _with_header(("sentence",), "label"), ("negative", "positive"))
MRPC = _task(
    "mrpc",
    "MRPC",
    _with_header(("#1 String", "#2 String"), "Quality"),
    ("not_equivalent", "equivalent"),
    hub_texts=_PAIR,
)
QQP = _task("qqp", "QQP", _with_header(("question1", "question2"), "is_duplicate"), ("not_duplicate", "duplicate"))
STSB = _task("stsb", "STS-B", _with_header(_PAIR, "score"), ())
MNLI = _task(
    "mnli",
    "MNLI",
    {
        _TRAIN: GlueFile(name="train.tsv", text_columns=_PAIR, label_column="gold_label"),
        SplitName.VALIDATION_MATCHED: GlueFile(name="dev_matched.tsv", text_columns=_PAIR, label_column="gold_label"),
        SplitName.VALIDATION_MISMATCHED: GlueFile(
            name="dev_mismatched.tsv", text_columns=_PAIR, label_column="gold_label"
        ),
        SplitName.TEST_MATCHED: GlueFile(name="test_matched.tsv", text_columns=_PAIR, label_column=None),
        SplitName.TEST_MISMATCHED: GlueFile(name="test_mismatched.tsv", text_columns=_PAIR, label_column=None),
    },
    _INFERENCE,
    label_values=_INFERENCE,
    hub_texts=("premise", "hypothesis"),
)
QNLI = _task(
    "qnli",
    "QNLI",
    _with_header(("question", "sentence"), "label"),
    _YES_NO_INFERENCE,
    label_values=_YES_NO_INFERENCE,
)
RTE = _task("rte", "RTE", _with_header(_PAIR, "label"), _YES_NO_INFERENCE, label_values=_YES_NO_INFERENCE)
WNLI = _task("wnli", "WNLI", _with_header(_PAIR, "label"), ("not_entailment", "entailment"))
AX = _task(
    "ax",
    "diagnostic",
    {SplitName.AX: GlueFile(name="diagnostic.tsv", text_columns=_PAIR, label_column=None)},
    _INFERENCE,
    label_values=_INFERENCE,
    hub_texts=("premise", "hypothesis"),
)
TASKS: Mapping[str, Task] = MappingProxyType(
    {task.name: task for task in (COLA, SST2, MRPC, QQP, STSB, MNLI, QNLI, RTE, WNLI, AX, DEMO)}
)


def find_task(name: str) -> Task:
    """Return the task of this name.

    Raises:
        SpecError: there is no such task.
    """
    task = TASKS.get(name)
    if task is None:
        raise SpecError(f"data.task is {name!r}, which is no task; the tasks are: {', '.join(TASKS)}")
    return task
