"""Tasks of GLUE in their official files and how each is scored, read and computed without Takt."""

import csv
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from scipy.stats import pearsonr, spearmanr
from sklearn.metrics import accuracy_score, f1_score, matthews_corrcoef

TableRow = dict[str, str]


@dataclass(frozen=True, slots=True, kw_only=True)
class GlueTask:
    """One task."""

    folder: str
    """In the folder of all tasks."""
    texts: tuple[str, ...]
    """Columns that a model reads."""
    label: str
    """Column of the label."""
    written: tuple[str, ...] = ("0", "1")
    """How files write each class, in the order of a head's outputs; empty where a number is learnt."""
    columns: tuple[str, ...] | None = None
    """Names of the columns of a file that begins with no header."""

    def rows(self, source: Path, split: str) -> list[TableRow]:
        """Return the rows of ``train`` or ``dev`` in the order of the file."""
        with (source / self.folder / f"{split}.tsv").open(encoding="utf-8-sig", newline="\n") as lines:
            return list(csv.DictReader(lines, self.columns, delimiter="\t", quoting=csv.QUOTE_NONE))

    def target(self, row: TableRow) -> float:
        """Return the class of a row, or its number."""
        return self.written.index(row[self.label]) if self.written else float(row[self.label])

    def prediction(self, outputs: Sequence[float]) -> str:
        """Return what a file of predictions says of a row with these outputs."""
        if not self.written:
            return f"{outputs[0]:.9g}"
        return self.written[max(range(len(outputs)), key=outputs.__getitem__)]


TASKS: Mapping[str, GlueTask] = {
    "cola": GlueTask(
        folder="CoLA", texts=("sentence",), label="label", columns=("source", "label", "original", "sentence")
    ),
    "rte": GlueTask(
        folder="RTE", texts=("sentence1", "sentence2"), label="label", written=("entailment", "not_entailment")
    ),
    "stsb": GlueTask(folder="STS-B", texts=("sentence1", "sentence2"), label="score", written=()),
    "mrpc": GlueTask(folder="MRPC", texts=("#1 String", "#2 String"), label="Quality"),
    "sst2": GlueTask(folder="SST-2", texts=("sentence",), label="label"),
}
"""By the name that a job file has for them."""


def predictions_in(file: Path) -> list[str]:
    """Return what a file of predictions says of each row, in the order of the indices, which are 0, 1, and so on.

    Raises:
        ValueError: they are not.
    """
    with file.open(newline="") as lines:
        rows = list(csv.DictReader(lines, delimiter="\t"))
    if [row["index"] for row in rows] != [str(index) for index in range(len(rows))]:
        raise ValueError(f"the indices of {file} are not 0, 1, and so on")
    return [row["prediction"] for row in rows]


def scores(name: str, labels: Sequence[str], predictions: Sequence[str]) -> dict[str, float]:
    """Return the metrics of a task by scikit-learn, of correlations by scipy, from what files say."""
    match name:
        case "cola":
            return {"matthews_correlation": matthews_corrcoef(labels, predictions)}
        case "mrpc":
            f1 = f1_score(labels, predictions, pos_label="1")
            return {"accuracy": accuracy_score(labels, predictions), "f1": f1}
        case "stsb":
            numbers = ([float(each) for each in predictions], [float(each) for each in labels])
            return {"pearson": pearsonr(*numbers).statistic, "spearmanr": spearmanr(*numbers).statistic}
        case _:
            return {"accuracy": accuracy_score(labels, predictions)}
