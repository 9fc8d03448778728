"""Reads the TSV files of the official GLUE layout from a local folder; no connection is ever made.

Fields are separated by tabs and nothing is quoted: a double quote is a
character of the sentence. Only a line feed ends a row (with an optional
carriage return before it), because sentences may hold other line separators
of Unicode.
"""

import codecs
import math
import stat
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from dataloader_svc.errors import DataFileError
from dataloader_svc.splits import SplitName, SplitRows
from dataloader_svc.tasks import LARGEST_SCORE, GlueFile, GlueLayout, Task

NO_LABEL = "-1"
"""What files that were made of the Hub's data have in place of a class, where there is none."""
Label = Callable[[str], int | float]
"""From what a file writes to the label; raises ValueError, with what is needed, for anything else."""
MAX_SHOWN, MAX_COLUMNS_SHOWN = 60, 20
"""Characters of a field, and names of columns, that a message repeats: what is no such file may be one long line."""


@dataclass(frozen=True, slots=True)
class _Line:
    """One line of a file."""

    number: int
    """From 1, the header included."""
    content: bytes

    def fields(self) -> list[str]:
        """Return its fields; raise ValueError, with what is wrong, where it is no text."""
        if b"\0" in self.content:  # what a disk leaves of a write that it lost; tokenizers drop it in silence
            raise ValueError(f"is no text: byte {self.content.index(0)} of it is NUL")
        try:
            return self.content.decode().split("\t")
        except UnicodeDecodeError as error:
            raise ValueError(f"is not UTF-8: byte {error.start} of it cannot be decoded") from None


def find_file(task: Task, layout: GlueLayout, source: Path, split: SplitName, *, needed: bool) -> Path | None:
    """Return the path of a split's file, None where there is nothing of its name and it is not needed.

    Raises:
        DataFileError: the task's folder is missing, or a file that is needed is; or what has its name is no file,
            which is no reason to do without the split.
    """
    file, folder = layout.files[split], source / layout.folder
    if not stat.S_ISDIR(_mode(folder) or 0):
        first = next(iter(layout.files.values()))
        raise DataFileError(
            f"task {task.name}: there is no folder {folder}; data.source must hold {layout.folder}/{first.name}"
        )
    path = folder / file.name
    mode = _mode(path)
    if mode is None:
        if needed:
            raise DataFileError(f"task {task.name}: there is no file {path.name} in {folder}")
        return None
    if not stat.S_ISREG(mode):
        raise DataFileError(f"{path} is no regular file; put the file of the {split} split in its place, or remove it")
    return path


def _mode(path: Path) -> int | None:
    """Return what kind of thing has this path, None where nothing has."""
    try:
        return path.stat().st_mode
    except (FileNotFoundError, NotADirectoryError):
        if path.is_symlink():
            raise DataFileError(f"{path} is a link to {path.readlink()}, which is not there") from None
        return None
    except OSError as error:
        raise DataFileError(f"{path} cannot be read: {error.strerror}") from error


def read_file(path: Path, file: GlueFile, *, label_values: Sequence[str], skip_malformed: bool) -> SplitRows:
    """Return the rows of one file; labels are ids in the order of ``label_values``, or numbers.

    Args:
        path: where it is.
        file: what its columns are.
        label_values: how the file writes each label; none where they are numbers.
        skip_malformed: leave out lines that do not fit, and count them.

    Raises:
        DataFileError: the file cannot be read or lacks a column, or lines do not fit and are not to be left out.
    """
    columns, lines = _table(path, file)
    places = [_place(path, columns, name) for name in file.text_columns]
    label_place = None if file.label_column is None else _place(path, columns, file.label_column)
    label = _reader(label_values, file.label_column)
    texts: list[list[str]] = []
    labels: list[int | float] = []
    malformed: list[str] = []
    for line in lines:
        try:
            fields = line.fields()
            if len(fields) != len(columns):
                raise ValueError(f"has {len(fields)} fields, not {len(columns)}")
            found = None if label_place is None else label(fields[label_place])
        except ValueError as error:
            malformed.append(f"line {line.number} {error}")
            continue
        texts.append([fields[place] for place in places])
        if found is not None:
            labels.append(found)
    if malformed and not skip_malformed:
        raise DataFileError(
            f"{_refusal(path, malformed)}; mend the file, or train without such lines by data.malformed_lines: skip"
        )
    if malformed and not texts:
        raise DataFileError(f"{_refusal(path, malformed)}; there is no line that does")
    first, *others = zip(*texts, strict=True) if texts else ((),) * len(places)
    return SplitRows(
        first=first,
        second=others[0] if others else None,
        labels=None if label_place is None else tuple(labels),
        num_malformed=len(malformed),
    )


def _reader(values: Sequence[str], column: str | None) -> Label:
    """Return what reads labels that a file writes as ``values``, or as numbers where there are none."""
    ids = {value: index for index, value in enumerate(values)}

    def class_id(text: str) -> int:
        if text == NO_LABEL:
            raise ValueError(
                f"has {text!r} in column {column!r}, which means no label, need one of {', '.join(values)}"
            )
        if text not in ids:
            raise ValueError(f"has {_shown(text)} in column {column!r}, need one of {', '.join(values)}")
        return ids[text]

    def number(text: str) -> float:
        try:
            value = float(text)
        except ValueError:
            value = math.nan
        if "_" in text:  # float takes it, as Python's own numbers may have it
            value = math.nan
        if not 0 <= value <= LARGEST_SCORE:  # NaN is not
            raise ValueError(f"has {_shown(text)} in column {column!r}, need a number from 0 to {LARGEST_SCORE:g}")
        return value

    return class_id if values else number


def _table(path: Path, file: GlueFile) -> tuple[Sequence[str], list[_Line]]:
    """Return the names of the columns and the lines below them."""
    lines = [_Line(number, line) for number, line in enumerate(_lines(path), start=1)]
    if file.columns is not None:
        return file.columns, lines
    try:
        return lines[0].fields(), lines[1:]
    except ValueError as error:
        raise DataFileError(f"{path} line 1 {error}; it should name the columns") from None


def _lines(path: Path) -> list[bytes]:
    try:
        content = path.read_bytes().removeprefix(codecs.BOM_UTF8)
    except OSError as error:
        raise DataFileError(f"{path} cannot be read: {error.strerror}") from error
    if not content:
        raise DataFileError(f"{path} is empty")
    return [line.removesuffix(b"\r") for line in content.removesuffix(b"\n").split(b"\n")]


def _place(path: Path, columns: Sequence[str], name: str) -> int:
    if name not in columns:
        more = f" and {len(columns) - MAX_COLUMNS_SHOWN} more" if len(columns) > MAX_COLUMNS_SHOWN else ""
        found = ", ".join(map(_shown, columns[:MAX_COLUMNS_SHOWN]))
        raise DataFileError(f"{path} has no column {name!r}; its header names {found}{more}")
    if columns.count(name) > 1:
        raise DataFileError(f"{path} has {columns.count(name)} columns {name!r}; give all but one another name")
    return columns.index(name)


def _shown(text: str) -> str:
    """Return what a file holds as a message shows it."""
    if len(text) <= MAX_SHOWN:
        return repr(text)
    return f"{text[:MAX_SHOWN]!r}... of {len(text)} characters"


def _refusal(path: Path, malformed: Sequence[str]) -> str:
    more = f"; lines that do not fit: {len(malformed)}" if len(malformed) > 1 else ""
    return f"{path} {malformed[0]}{more}"
