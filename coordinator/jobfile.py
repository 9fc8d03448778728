"""Reads a job file: YAML, ``--set`` overrides, paths made absolute, and the text of a custom plan."""

import os
from collections.abc import Collection, Iterable, Mapping
from dataclasses import replace
from pathlib import Path

from coordinator.costs import CostsError, from_text, is_path
from coordinator.problem import Problem, SpecError
from coordinator.sections import MAX_COSTS_BYTES, MAX_PLAN_BYTES
from coordinator.spec import JobSpec, parse_spec
from coordinator.yaml_text import YamlError, YamlText, read_yaml

MAX_JOB_FILE_BYTES = 2**20
"""Size limit of a job file; the plan that it may name is a file of its own."""
PATH_KEYS = ("model.pretrained", "data.source", "data.tokenizer", "checkpoint.from")
"""Keys that hold a folder, or something else: a Hub id, a job's id."""
PLAN_KEY, COSTS_KEY = "schedule.file", "parallel.costs"
"""Keys that hold the path of a file, and in a spec its text: of a plan, and of what a profile measured."""
ALTERNATIVES = (("train.epochs", "train.max_steps"), ("model.pretrained", "model.config"))
"""Pairs of keys of which a job has one; an override of one takes the place of the other in the file."""


def load_job(path: Path, overrides: Iterable[str] = ()) -> JobSpec:
    """Return the job that the file ``path`` describes, after ``overrides`` such as ``train.max_steps=20``.

    An override's value is YAML, and the last one of a key counts; an override of one of two ``ALTERNATIVES`` drops
    the other one. A relative path in the file is taken from the file's folder, one in an override from the current
    folder.

    Raises:
        SpecError: With everything that is wrong; each problem tells its line of the file, or its override.
    """
    text = _read_file(path)
    document = text.value
    if not isinstance(document, dict):
        kind = "empty" if document is None else "not a mapping"
        raise SpecError([Problem("", f"is {kind}, needs the keys name, model and data", where=str(path))])
    _make_paths_absolute(document, folder=path.parent)
    overridden = [_override(document, override) for override in overrides]
    _drop_alternatives(document, overridden)
    unread = {key: _inline(document, key) for key in (PLAN_KEY, COSTS_KEY)}
    try:
        return parse_spec(document)
    except SpecError as error:
        # A path that was left where a text belongs is a problem; why it was left there is the better one.
        problems = [unread.get(each.key) or each for each in error.problems]
        raise SpecError(
            replace(each, where=_where(each.key, path=path, lines=text.lines, overridden=overridden))
            for each in problems
        ) from None


def read_plan(path: Path) -> str:
    """Return the text of a custom plan's file, ending with a line end.

    Raises:
        SpecError: It cannot be read, is too large, or is no text.
    """
    try:
        text = _read_text(path, what="plan", max_bytes=MAX_PLAN_BYTES)
    except _UnreadableError as error:
        raise SpecError([Problem(PLAN_KEY, f"{path}: {error}")]) from None
    return text if text.endswith("\n") else f"{text}\n"


def read_costs(path: Path) -> str:
    """Return the text of a file of costs.

    Raises:
        SpecError: It cannot be read, is too large, or holds no costs.
    """
    try:
        text = _read_text(path, what="costs", max_bytes=MAX_COSTS_BYTES)
        from_text(text)
    except (_UnreadableError, CostsError) as error:
        raise SpecError([Problem(COSTS_KEY, f"{path}: {error}")]) from None
    return text


class _UnreadableError(Exception):
    """A file whose text cannot be had."""


def _read_text(path: Path, *, what: str, max_bytes: int) -> str:
    try:
        with open(path, "rb", opener=_open_at_once) as file:
            data = file.read(max_bytes + 1)
        text = data.decode("utf-8-sig")
    except FileNotFoundError:
        raise _UnreadableError(f"there is no such {what} file") from None
    except OSError as error:
        raise _UnreadableError(f"cannot be read: {error.strerror}") from None
    except UnicodeDecodeError as error:
        raise _UnreadableError(f"is not UTF-8 text: {error.reason}") from None
    if len(data) > max_bytes:
        raise _UnreadableError(f"has more than {max_bytes} bytes, is no {what} file")
    return text


def _open_at_once(path: str, flags: int) -> int:
    """Open a file; a pipe that nobody writes to is empty then, where opening it would wait for a writer."""
    descriptor = os.open(path, flags | os.O_NONBLOCK)
    os.set_blocking(descriptor, True)
    return descriptor


def _read_file(path: Path) -> YamlText:
    try:
        return read_yaml(_read_text(path, what="job", max_bytes=MAX_JOB_FILE_BYTES))
    except _UnreadableError as error:
        raise SpecError([Problem("", str(error), where=str(path))]) from None
    except YamlError as error:
        where = f"{path}:{error.line}" if error.line else str(path)
        raise SpecError([Problem("", str(error), where=where)]) from None


def _inline(document: Mapping[str, object], key: str) -> Problem | None:
    """Put the text of the file that ``key`` names in place of its path; where that cannot be done say why."""
    section_name, _, name = key.partition(".")
    section = document.get(section_name)
    place = section.get(name) if isinstance(section, dict) else None
    if not isinstance(section, dict) or not isinstance(place, str) or not _is_file(place, key):
        return None
    try:
        section[name] = read_plan(Path(place)) if key == PLAN_KEY else read_costs(Path(place))
    except SpecError as error:
        return error.problems[0]
    return None


def _is_file(place: str, key: str) -> bool:
    """Whether ``place`` can be the path of a file; a text of several lines, or of costs, is its content already."""
    return bool(place) and not set("\n\0").intersection(place) and (key == PLAN_KEY or is_path(place))


def _override(document: dict[str, object], override: str) -> str:
    """Change ``document`` as ``override`` says; return the key that was set."""
    key, equals, text = override.partition("=")
    parts = key.split(".")
    where = f"--set {override}"
    if not equals or not all(parts):
        raise SpecError([Problem("", "is no override, needs key.path=value", where=where)])
    try:
        value = read_yaml(text).value
    except YamlError as error:
        raise SpecError([Problem(key, f"the value {error}", where=where)]) from None
    section = document
    for depth, part in enumerate(parts[:-1], start=1):
        child = section.setdefault(part, {})
        if child is None:
            child = section[part] = {}
        if not isinstance(child, dict):
            raise SpecError([Problem(".".join(parts[:depth]), "is a value, it has no keys below it", where=where)])
        section = child
    section[parts[-1]] = value
    _make_paths_absolute(document, folder=Path.cwd(), under=key)
    return key


def _drop_alternatives(document: dict[str, object], overridden: Collection[str]) -> None:
    """Take out of ``document`` what an override has replaced by its alternative."""

    def is_overridden(key: str) -> bool:
        return any(f"{override}.".startswith(f"{key}.") for override in overridden)

    for pair in ALTERNATIVES:
        for chosen, other in (pair, pair[::-1]):
            section_name, _, name = chosen.partition(".")
            section = document.get(section_name)
            if not isinstance(section, dict) or section.get(name) is None:
                continue
            if is_overridden(chosen) and not is_overridden(other):
                section.pop(other.partition(".")[2], None)


def _make_paths_absolute(document: dict[str, object], *, folder: Path, under: str = "") -> None:
    """Make the paths of ``document`` absolute, of all keys or of ``under`` and the keys below it."""
    for key in (*PATH_KEYS, PLAN_KEY, COSTS_KEY):
        section_name, _, name = key.partition(".")
        section = document.get(section_name)
        if not f"{key}.".startswith(f"{under}." if under else "") or not isinstance(section, dict):
            continue
        place = section.get(name)
        if not isinstance(place, str):
            continue
        if key not in PATH_KEYS:
            if _is_file(place, key):
                section[name] = os.path.abspath(os.path.join(folder, os.path.expanduser(place)))
        else:
            section[name] = _absolute(place, folder=folder, is_hub=key == "data.source" and place == "hub")


def _absolute(place: str, *, folder: Path, is_hub: bool) -> str:
    """Return ``place`` as an absolute path if it is a path; a Hub id stays what it is.

    It is one where it begins with ``.``, ``/`` or ``~``, or where a folder of that name is there.
    """
    if is_hub or not place or "\0" in place:
        return place
    expanded = os.path.expanduser(place)
    joined = os.path.join(folder, expanded)
    return os.path.realpath(joined) if place[:1] in ("/", ".", "~") or os.path.isdir(joined) else place


def _where(key: str, *, path: Path, lines: Mapping[str, int], overridden: Iterable[str]) -> str:
    """Return where the value of ``key`` was written, or the section that it is missing from."""
    for override in overridden:
        made_by = key not in lines and f"{override}.".startswith(f"{key}.")
        if f"{key}.".startswith(f"{override}.") or made_by:
            return f"--set {override}"
    parts = key.split(".")
    prefixes = (".".join(parts[:length]) for length in range(len(parts), 0, -1))
    line = next((lines[prefix] for prefix in prefixes if prefix in lines), None)
    return str(path) if line is None else f"{path}:{line}"
