"""Reads the tasks of GLUE from the Hugging Face Hub, `nyu-mll/glue`, through the library `datasets`.

What the library has prepared in its cache is taken as it is, and no connection is made. Only what is not there is
downloaded, by one process at a time: the others wait at the library's own lock and then find it prepared. The
library takes seconds to import, so nothing but a job whose data come from the Hub imports it.
"""

import threading
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from dataloader_svc.errors import DataFileError
from dataloader_svc.splits import SplitName, SplitRows
from dataloader_svc.tasks import LARGEST_SCORE, Task

if TYPE_CHECKING:
    from datasets import DatasetBuilder

REACH_SECONDS = 15.0
"""How long the Hub may take to answer the first question, name look-up and all."""
REQUEST_SECONDS = 10.0
"""How long one request of it may wait for the next byte."""
LABEL_COLUMN = "label"

Label = Callable[[Any], int | float]
"""From what the data set holds to the label; raises ValueError, with what is needed, for anything else."""


def find_files(task: Task, repository: str) -> dict[SplitName, tuple[Path, ...]]:
    """Return the files of each split of a task in the library's cache; what is not there is downloaded first.

    Args:
        task: one of GLUE's.
        repository: the data set's id on the Hub.

    Raises:
        DataFileError: it cannot be had, or it lacks a split.
    """
    import datasets  # noqa: PLC0415
    from datasets.naming import filenames_for_dataset_split  # noqa: PLC0415

    datasets.disable_progress_bars()
    folder = _prepared(task, repository) or _prepare(task, repository)
    info = _info(folder)
    missing = [split.on_hub for split in task.splits if split.on_hub not in info.splits]
    if missing:
        raise DataFileError(
            f"task {task.name}: {repository} has no split {', '.join(missing)}; it has {', '.join(info.splits)}"
        )
    found = {
        split: filenames_for_dataset_split(
            folder,
            info.dataset_name,
            split.on_hub,
            filetype_suffix="arrow",
            shard_lengths=info.splits[split.on_hub].shard_lengths,
        )
        for split in task.splits
    }
    return {split: tuple(map(Path, files)) for split, files in found.items()}


def read_files(
    files: Sequence[Path], task: Task, split: SplitName, *, repository: str, skip_malformed: bool
) -> SplitRows:
    """Return the rows of one split; labels are ids in the order of the task's labels, or numbers.

    A label means what the data set calls it, whatever its id there.

    Args:
        files: those that `find_files` found for the split.
        task: whose split it is.
        split: its name.
        repository: the data set, as messages name it.
        skip_malformed: leave out rows without a text or a label, and count them.

    Raises:
        DataFileError: a file cannot be read, lacks a column or calls the labels otherwise, or rows do not fit and are
            not to be left out.
    """
    assert task.layout is not None
    place = f"task {task.name}: split {split.on_hub} of {repository}"
    labelled = task.layout.files[split].label_column is not None
    columns, features = _load(files, split, names=[*task.hub_texts, *([LABEL_COLUMN] if labelled else [])], place=place)
    for name in task.hub_texts:
        if getattr(features[name], "dtype", None) not in ("string", "large_string"):
            raise DataFileError(f"{place} has {features[name]} in column {name!r}, need text")
    label = _reader(features[LABEL_COLUMN], task.labels, place) if labelled else None
    texts: list[list[str]] = []
    labels: list[int | float] = []
    malformed: list[str] = []
    for row, cells in enumerate(zip(*(columns[name] for name in task.hub_texts), strict=True)):
        try:
            if None in cells:
                raise ValueError(f"has nothing in column {task.hub_texts[cells.index(None)]!r}, need text")
            found = None if label is None else label(columns[LABEL_COLUMN][row])
        except ValueError as error:
            malformed.append(f"row {row} {error}")
            continue
        texts.append(list(cells))
        if found is not None:
            labels.append(found)
    if malformed and not skip_malformed:
        more = f"; rows that do not fit: {len(malformed)}" if len(malformed) > 1 else ""
        raise DataFileError(f"{place}: {malformed[0]}{more}; train without such rows by data.malformed_lines: skip")
    first, *others = zip(*texts, strict=True) if texts else ((),) * len(task.hub_texts)
    return SplitRows(
        first=first,
        second=others[0] if others else None,
        labels=tuple(labels) if labelled else None,
        num_malformed=len(malformed),
    )


def _cache_folder(task: Task, repository: str) -> Path:
    """Return the folder of the library's cache that holds a task, one folder below it for each version and content."""
    from datasets import config  # noqa: PLC0415

    return Path(config.HF_DATASETS_CACHE).expanduser() / repository.replace("/", "___") / task.name


def _prepared(task: Task, repository: str) -> Path | None:
    """Return the folder that was prepared last, None where there is none."""
    infos = _cache_folder(task, repository).glob("*/*/dataset_info.json")
    found = [info for info in infos if info.parent.suffix != ".incomplete"]
    return max(found, key=lambda info: (info.stat().st_mtime_ns, info)).parent if found else None


def _prepare(task: Task, repository: str) -> Path:
    """Have the library download a task and prepare it in its cache; return the folder there."""
    from datasets import config, load_dataset_builder  # noqa: PLC0415

    if config.HF_HUB_OFFLINE:
        raise _refusal(task, repository, "HF_HUB_OFFLINE or HF_DATASETS_OFFLINE forbids to download it")
    _reach(task, repository)
    try:
        builder: DatasetBuilder = load_dataset_builder(repository, task.name)
        builder.download_and_prepare()
    except Exception as error:  # the library has no type of its own for them
        raise _refusal(task, repository, f"it could not be loaded: {_told(error)}") from error
    return Path(builder.cache_dir)


def _reach(task: Task, repository: str) -> None:
    """Ask the Hub for the data set once, because the library's many retries hide for long that there is no network.

    Neither name look-up nor a connection to many addresses heeds the time limit of a request, so a thread waits.
    """
    from datasets import config  # noqa: PLC0415
    from huggingface_hub import HfApi  # noqa: PLC0415

    errors: list[Exception] = []

    def ask() -> None:
        try:
            HfApi(endpoint=config.HF_ENDPOINT).dataset_info(repository, timeout=REQUEST_SECONDS)
        except Exception as error:  # of the library below, whose types are not ours to know
            errors.append(error)

    thread = threading.Thread(target=ask, name="hub", daemon=True)
    thread.start()
    thread.join(REACH_SECONDS)
    if thread.is_alive():
        raise _refusal(task, repository, f"{config.HF_ENDPOINT} did not answer within {REACH_SECONDS:g} s")
    if errors:
        raise _refusal(task, repository, f"{config.HF_ENDPOINT} does not give it: {_told(errors[0])}") from errors[0]


def _refusal(task: Task, repository: str, why: str) -> DataFileError:
    assert task.layout is not None
    file = f"{task.layout.folder}/{next(iter(task.layout.files.values())).name}"
    return DataFileError(
        f"task {task.name}: data.source is hub, but the data set {repository} is not in "
        f"{_cache_folder(task, repository)}, and {why}; give data.source a folder in the official GLUE layout, "
        f"which holds {file}, or run it once where the Hub can be reached"
    )


def _told(error: Exception) -> str:
    """Return what an error says, on one line."""
    return " ".join(f"{type(error).__name__}: {error}".split())[:400]


def _info(folder: Path) -> Any:
    from datasets import DatasetInfo  # noqa: PLC0415

    try:
        info = DatasetInfo.from_directory(str(folder))
    except (OSError, ValueError, TypeError, KeyError) as error:
        raise DataFileError(f"{folder}/dataset_info.json cannot be read: {_told(error)}; {_AGAIN}") from error
    if not info.splits or not info.dataset_name:
        raise DataFileError(f"{folder}/dataset_info.json names no data set and no splits; {_AGAIN}")
    return info


_AGAIN = "remove that folder of the cache, and the data are prepared again"


def _load(
    files: Sequence[Path], split: SplitName, *, names: Sequence[str], place: str
) -> tuple[Mapping[str, Sequence[Any]], Mapping[str, Any]]:
    """Return the columns, those of these names among them, and the feature of each; all rows, or it is refused."""
    import datasets  # noqa: PLC0415

    folder = files[0].parent
    try:
        parts = [datasets.Dataset.from_file(str(path)) for path in files]
        missing = [name for name in names if name not in parts[0].column_names]
        if missing:
            has = ", ".join(map(repr, parts[0].column_names))
            raise DataFileError(f"{place} has no column {', '.join(map(repr, missing))}; it has {has}")
        rows = datasets.concatenate_datasets(parts)
        columns: Mapping[str, Sequence[Any]] = rows[:]
    except (OSError, ValueError) as error:  # those of pyarrow are such
        raise DataFileError(f"{place} cannot be read from {folder}: {_told(error)}; {_AGAIN}") from error
    expected = _info(folder).splits[split.on_hub].num_examples
    if len(rows) != expected:
        raise DataFileError(f"{place} has {len(rows)} rows in {folder}, not {expected}; {_AGAIN}")
    return columns, rows.features


def _reader(feature: Any, labels: Sequence[str], place: str) -> Label:
    """Return what reads labels of a feature: by the names it gives them, or numbers where the task has none."""
    names = getattr(feature, "names", None)
    is_number = names is None and str(getattr(feature, "dtype", "")).startswith("float")
    if not labels and not is_number:
        raise DataFileError(f"{place} has {feature} in column {LABEL_COLUMN!r}, need numbers of a float type")
    if labels and (names is None or sorted(names) != sorted(labels)):
        called = f"{feature}, which has no names" if names is None else f"labels called {', '.join(names)}"
        raise DataFileError(f"{place} has {called} in column {LABEL_COLUMN!r}, need those called {', '.join(labels)}")
    ids = [labels.index(name) for name in names or ()]

    def class_id(value: int | None) -> int:
        if value is None or not 0 <= value < len(ids):
            raise ValueError(f"has the label {value}, which means none, need 0 to {len(ids) - 1}")
        return ids[value]

    def number(value: float | None) -> float:
        if value is None or not 0 <= value <= LARGEST_SCORE:  # NaN is not
            raise ValueError(f"has the label {value}, need a number from 0 to {LARGEST_SCORE:g}")
        return float(value)

    return class_id if labels else number
