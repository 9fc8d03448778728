"""Reads the TSV files of the official GLUE layout from a local folder; no connection is ever made.

Fields are separated by tabs and nothing is quoted: a double quote is a
character of the sentence. Only a line feed ends a row (with an optional
carriage return before it), because sentences may hold other line separators
of Unicode.
"""

from pathlib import Path

from dataloader_svc.errors import DataFileError
from dataloader_svc.splits import SplitName, SplitRows
from dataloader_svc.tasks import GlueLayout, Task


def find_file(task: Task, layout: GlueLayout, source: Path, split: SplitName) -> Path | None:
    """Return the path of a split's file, None where the task has no such file.

    Raises:
        DataFileError: the task's folder is missing, or the file of the training split is.
    """
    folder = source / layout.folder
    if not folder.is_dir():
        raise DataFileError(
            f"task {task.name}: there is no folder {folder}; data.source must hold {layout.folder}/train.tsv"
        )
    path = folder / layout.file_name(split)
    if path.is_file():
        return path
    if split is SplitName.TRAIN:
        raise DataFileError(f"task {task.name}: there is no file {path.name} in {folder}")
    return None


def read_file(task: Task, layout: GlueLayout, path: Path, split: SplitName) -> SplitRows:
    """Return the rows of one file; the test split has no labels in this layout.

    Raises:
        DataFileError: the file cannot be read, lacks a column, or has a row that does not fit its header.
    """
    lines = _lines(path)
    header = lines[0].split("\t")
    fields = [_fields(path, number, line, width=len(header)) for number, line in enumerate(lines[1:], start=2)]
    texts = [_column(path, header, fields, name) for name in layout.text_columns]
    labels = None
    if split is not SplitName.TEST:
        labels = _labels(path, layout, _column(path, header, fields, layout.label_column))
    return SplitRows(first=texts[0], second=texts[1] if task.num_texts == 2 else None, labels=labels)


def _lines(path: Path) -> list[str]:
    try:
        text = path.read_bytes().decode("utf-8-sig")
    except OSError as error:
        raise DataFileError(f"{path} cannot be read: {error.strerror}") from error
    except UnicodeDecodeError as error:
        raise DataFileError(f"{path} is not UTF-8: byte {error.start} cannot be decoded") from error
    if not text:
        raise DataFileError(f"{path} is empty; its first line must name the columns")
    return [line.removesuffix("\r") for line in text.removesuffix("\n").split("\n")]


def _fields(path: Path, number: int, line: str, *, width: int) -> list[str]:
    fields = line.split("\t")
    if len(fields) != width:
        raise DataFileError(f"{path} line {number} has {len(fields)} fields, its header names {width}")
    return fields


def _column(path: Path, header: list[str], fields: list[list[str]], name: str) -> tuple[str, ...]:
    if name not in header:
        raise DataFileError(f"{path} has no column {name!r}; its header names {', '.join(map(repr, header))}")
    index = header.index(name)
    return tuple(row[index] for row in fields)


def _labels(path: Path, layout: GlueLayout, values: tuple[str, ...]) -> tuple[int, ...]:
    ids = {value: index for index, value in enumerate(layout.label_values)}
    for number, value in enumerate(values, start=2):
        if value not in ids:
            raise DataFileError(
                f"{path} line {number} has {value!r} in column {layout.label_column!r}, "
                f"need one of {', '.join(layout.label_values)}"
            )
    return tuple(ids[value] for value in values)
