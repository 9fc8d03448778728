"""The order of a task's labels: that of the model where it names them, else that of the data set."""

import json
from pathlib import Path

from dataloader_svc.tasks import Task


def labels_of(task: Task, model: Path | None) -> tuple[str, ...]:
    """Return the task's label names in the order of a model's ids.

    Names are compared without case, and with ``-`` and spaces as ``_``. A model that names other labels, or none, is
    given the order of the data set; whether it can be trained so is not decided here.

    Args:
        task: whose labels they are.
        model: its folder; None for a new one.
    """
    by_name = {_plain(label): label for label in task.labels}
    named = [] if model is None else [_plain(label) for label in _named_labels(model)]
    if sorted(named) != sorted(by_name):
        return task.labels
    return tuple(by_name[name] for name in named)


def _plain(label: str) -> str:
    return label.casefold().replace("-", "_").replace(" ", "_")


def _named_labels(folder: Path) -> list[str]:
    """Return the labels of a model's config in the order of their ids; none where it has no such config."""
    try:
        config = json.loads((folder / "config.json").read_text(encoding="utf-8"))
        by_id = {int(index): str(label) for index, label in dict(config["id2label"]).items()}
    except (OSError, ValueError, KeyError, TypeError, RecursionError):
        return []  # what is wrong with the folder is told by whoever loads the model
    return [by_id[index] for index in sorted(by_id)]
