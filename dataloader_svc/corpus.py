"""The text that a job trains on and is evaluated with: its splits, wherever they come from."""

from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

from takt.rpc.paths import is_under

from dataloader_svc import glue, hub
from dataloader_svc.demo import demo_splits
from dataloader_svc.errors import RequestError, SpecError
from dataloader_svc.labels import labels_of
from dataloader_svc.settings import DataSettings, MalformedLines
from dataloader_svc.splits import SplitName, SplitRows
from dataloader_svc.tokens import DECIDING_FILES


@dataclass(frozen=True, slots=True, kw_only=True)
class FileStamp:
    """What tells one content of a file from the next without reading it."""

    path: Path
    num_bytes: int
    modified_ns: int


def check_allowed(settings: DataSettings, roots: Iterable[Path]) -> None:
    """Check that the job's folders lie under ``roots``, links resolved.

    Raises:
        SpecError: one does not.
    """
    allowed = tuple(roots)
    paths = {
        "data.source": settings.source,
        "data.tokenizer": settings.tokenizer,
        "model.pretrained": settings.model,
    }
    for key, path in paths.items():
        if path is not None and not is_under(path, allowed):
            raise SpecError(f"{key} is {path}, which is under no --allow-root of the data service")


def find_splits(settings: DataSettings) -> dict[SplitName, tuple[Path, ...]]:
    """Return the splits that the task has and the files of each, none for generated ones.

    Raises:
        DataFileError: the task's folder is missing, or the training file of a job that trains, or the Hub's data
            cannot be had.
    """
    task, source = settings.task, settings.source
    if settings.repository is not None:
        return hub.find_files(task, settings.repository)
    if task.layout is None or source is None:
        return dict.fromkeys(task.splits, ())
    needed = SplitName.TRAIN if settings.predicted_split is None else None  # what else is there need not be read
    found = {split: glue.find_file(task, task.layout, source, split, needed=split is needed) for split in task.splits}
    return {split: (path,) for split, path in found.items() if path is not None}


def read_rows(settings: DataSettings, split: SplitName) -> SplitRows:
    """Return the rows of one split; the training split is cut to ``max_train_rows``.

    Raises:
        RequestError: the task has no such split.
        DataFileError: its file is not what its name promises.
    """
    splits = find_splits(settings)
    layout = settings.task.layout
    if split not in splits:
        refusal = f"task {settings.task.name} has no split {split}; it has {', '.join(splits)}"
        if layout is not None and settings.source is not None and split in layout.files:
            refusal += f"; there is no file {settings.source / layout.folder / layout.files[split].name}"
        raise RequestError(refusal)
    files = splits[split]
    skip_malformed = settings.malformed_lines is MalformedLines.SKIP
    if layout is None:
        rows = demo_splits()[split]
    elif settings.repository is not None:
        rows = hub.read_files(
            files, settings.task, split, repository=settings.repository, skip_malformed=skip_malformed
        )
    else:
        (path,) = files
        rows = glue.read_file(
            path, layout.files[split], label_values=layout.label_values, skip_malformed=skip_malformed
        )
    order = labels_of(settings.task, settings.model)
    rows = rows.with_ids([order.index(label) for label in settings.task.labels])
    if split is SplitName.TRAIN and settings.max_train_rows is not None:
        return rows.head(settings.max_train_rows)
    return rows


def stamps(settings: DataSettings, split: SplitName) -> tuple[FileStamp, ...]:
    """Return the stamps of the files that a split's tokens come from; a missing file has none."""
    paths = list(find_splits(settings).get(split, ()))
    if settings.tokenizer is not None:
        paths += [settings.tokenizer / name for name in DECIDING_FILES]
    return tuple(_stamp(path) for path in paths if path.is_file())


def _stamp(path: Path) -> FileStamp:
    status = path.stat()
    return FileStamp(path=path, num_bytes=status.st_size, modified_ns=status.st_mtime_ns)
