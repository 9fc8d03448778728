"""The tasks that are built: where their rows lie and what their labels mean."""

from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType

from dataloader_svc.errors import SpecError
from dataloader_svc.splits import SplitName


@dataclass(frozen=True, slots=True, kw_only=True)
class GlueLayout:
    """Where a task's rows lie in the official GLUE folder layout."""

    folder: str
    """Folder of the task below the data source."""
    text_columns: tuple[str, ...]
    """Header names of the sentence, or of the two sentences of a pair."""
    label_column: str
    """Header name of the label."""
    label_values: tuple[str, ...]
    """How a file writes each label, in the order of their ids."""

    def file_name(self, split: SplitName) -> str:
        """Return the name of a split's file in the task's folder."""
        return "dev.tsv" if split is SplitName.VALIDATION else f"{split}.tsv"


@dataclass(frozen=True, slots=True, kw_only=True)
class Task:
    """One classification task."""

    name: str
    """As in ``data.task``."""
    labels: tuple[str, ...]
    """Label names in the order of their ids."""
    layout: GlueLayout | None
    """Where its files lie; None for the built-in task, which is generated."""

    @property
    def num_texts(self) -> int:
        """Sentences of one row: 1, or 2 for a pair."""
        return 1 if self.layout is None else len(self.layout.text_columns)


DEMO = Task(name="demo", labels=("negative", "positive"), layout=None)
SST2 = Task(
    name="sst2",
    labels=("negative", "positive"),
    layout=GlueLayout(
        folder="SST-2",
        text_columns=("sentence",),
        label_column="label",
        label_values=("0", "1"),
    ),
)
MRPC = Task(
    name="mrpc",
    labels=("not_equivalent", "equivalent"),
    layout=GlueLayout(
        folder="MRPC",
        text_columns=("#1 String", "#2 String"),
        label_column="Quality",
        label_values=("0", "1"),
    ),
)
TASKS: Mapping[str, Task] = MappingProxyType({task.name: task for task in (DEMO, MRPC, SST2)})


def find_task(name: str) -> Task:
    """Return the task of this name.

    Raises:
        SpecError: no such task is built.
    """
    task = TASKS.get(name)
    if task is None:
        raise SpecError(f"data.task is {name!r}, which is not built; the tasks that are: {', '.join(sorted(TASKS))}")
    return task
