"""The job spec: a job file's content, checked, with every default filled in. No I/O."""

import copy
import hashlib
import json
from collections.abc import Mapping, Sequence
from typing import Any

from pydantic import ValidationError
from pydantic_core import ErrorDetails

from coordinator import built, rules
from coordinator.choices import Task
from coordinator.keys import KEYS, expected, known_prefix, nearest
from coordinator.problem import Problem, SpecError
from coordinator.sections import MAX_PLAN_BYTES, JobSpec

__all__ = ["MAX_SPEC_BYTES", "JobSpec", "digest", "from_json", "json_schema", "parse_spec", "to_json"]

MAX_SPEC_BYTES = 2 * MAX_PLAN_BYTES
"""Size limit of a job as JSON; nearly all of a large one is a custom plan."""
MAX_DEPTH = 32
"""How deep mappings and lists of a job may lie in each other."""

_STAND_INS: Mapping[str, object] = {"name": "job", "model": {}, "data": {"task": "demo"}, "data.task": "demo"}
"""Values for required keys that are missing or wrong, so that the rest can still be checked."""


def parse_spec(document: object) -> JobSpec:
    """Return the spec that ``document`` says: the mapping that a job file or spec.json holds, paths absolute.

    Its values are those of JSON; a float may be infinite or NaN, and is refused.

    Raises:
        SpecError: With everything that is wrong at once, in the order of the job file.
    """
    if not isinstance(document, Mapping):
        raise SpecError([Problem("", f"the job is {_told(document)}, needs a mapping with name, model and data")])
    if _is_deeper(document, MAX_DEPTH):
        raise SpecError([Problem("", f"the job is nested too deep, at most {MAX_DEPTH} levels are allowed")])
    try:
        text = json.dumps(document, ensure_ascii=False).encode()
    except UnicodeEncodeError as error:
        raise SpecError([Problem("", f"the job holds text that is not Unicode: {error}")]) from None
    filled: dict[str, Any] = json.loads(text)
    _one_of(filled.get("train"), default="epochs", other="max_steps")
    _one_of(filled.get("schedule"), default="num_microbatches", other="microbatch_size")
    spec, errors = _validated(filled)
    own: dict[str, Problem] = {}
    for problem in (_problem(error, filled) for error in errors):
        own.setdefault(problem.key, problem)  # a value that none of several types takes has an error of each
    if spec is None:
        spec = _repaired(filled, errors)
    bad = frozenset(own)
    others = [*rules.problems(spec, without=bad), *(each for each in built.not_built(spec) if each.key not in bad)]
    found = {(problem.key, problem.message): problem for problem in [*own.values(), *others]}
    if found:
        raise SpecError(sorted(found.values(), key=lambda problem: _place(problem.key)))
    return _with_tokenizer(spec)


def from_json(text: str) -> JobSpec:
    """Return the spec that ``text`` holds, the text of spec.json.

    Raises:
        SpecError: It is too large, no JSON, or no valid job.
    """
    if len(text.encode()) > MAX_SPEC_BYTES:
        raise SpecError([Problem("", f"the job has {len(text.encode())} bytes, at most {MAX_SPEC_BYTES} are allowed")])
    try:
        document = json.loads(text)
    except ValueError as error:
        raise SpecError([Problem("", f"the job is not JSON: {error}")]) from None
    except RecursionError:
        raise SpecError([Problem("", f"the job is nested too deep, at most {MAX_DEPTH} levels are allowed")]) from None
    return parse_spec(document)


def to_json(spec: JobSpec) -> str:
    """Return the text of spec.json: every key, in the order of the job file; equal specs have equal texts."""
    document = spec.model_dump(mode="json", by_alias=True)
    if spec.model.config is not None:
        document["model"]["config"] = json.loads(json.dumps(spec.model.config, sort_keys=True))
    return json.dumps(document, indent=2, allow_nan=False) + "\n"


def digest(spec: JobSpec) -> str:
    """Return the SHA-256 of spec.json, lower-case hex; equal specs have equal digests."""
    return hashlib.sha256(to_json(spec).encode()).hexdigest()


def json_schema() -> dict[str, Any]:
    """Return the JSON Schema of the job file, with what each key means and its default."""
    schema = JobSpec.model_json_schema(by_alias=True)
    return {"$schema": "https://json-schema.org/draft/2020-12/schema", **schema, "title": "Takt job file"}


def _is_deeper(value: object, levels: int) -> bool:
    children = value.values() if isinstance(value, Mapping) else value if isinstance(value, list) else ()
    return levels < 0 or any(_is_deeper(child, levels - 1) for child in children)


def _with_tokenizer(spec: JobSpec) -> JobSpec:
    """Return ``spec`` with the tokenizer of its model where it names none; demo has one of its own."""
    if spec.data.tokenizer is not None or spec.data.task is Task.DEMO:
        return spec
    data = spec.data.model_copy(update={"tokenizer": spec.model.pretrained})
    return spec.model_copy(update={"data": data})


def _one_of(section: object, *, default: str, other: str) -> None:
    """Leave ``default`` to its default where neither key is given, and make it null where only ``other`` is.

    ``section`` is changed, unless it is no mapping, which is told later.
    """
    if not isinstance(section, dict):
        return
    if section.get(other) is not None:
        section.setdefault(default, None)
    elif section.get(default, ...) is None:
        del section[default]


def _validated(document: Mapping[str, Any]) -> tuple[JobSpec | None, Sequence[ErrorDetails]]:
    # Through JSON, because there pydantic's strict types take text for an enum and a list for a tuple.
    try:
        return JobSpec.model_validate_json(json.dumps(document)), ()
    except ValidationError as error:
        return None, error.errors(include_url=False, include_context=False)


def _repaired(document: Mapping[str, Any], errors: Sequence[ErrorDetails]) -> JobSpec:
    """Return the spec of ``document`` without what is wrong in it by itself."""
    rest = json.loads(json.dumps(document))
    for error in errors:
        path = _bad_path(error)
        parent = _find(rest, path[:-1])
        if isinstance(parent, dict):
            stand_in = _STAND_INS.get(".".join(path), ...)
            parent.pop(path[-1], None)
            if stand_in is not ...:
                parent[path[-1]] = copy.deepcopy(stand_in)
    return JobSpec.model_validate_json(json.dumps(rest))


def _bad_path(error: ErrorDetails) -> list[str]:
    """Return the path of the key that ``error`` is about; a list's entries and a union's branches belong to it."""
    location = error["loc"]
    if error["type"] == "extra_forbidden":
        return [str(part) for part in location]
    return known_prefix(location).split(".")


def _problem(error: ErrorDetails, document: object) -> Problem:
    path = _bad_path(error)
    key = ".".join(path)
    if error["type"] == "extra_forbidden" and key in KEYS:
        return Problem(key, "is written with a dot in one key; write a section with a key in it")
    if error["type"] == "extra_forbidden":
        return Problem(key, f"is no key of the job file; the nearest is {' or '.join(nearest(key))}")
    needed = expected(key, values=built.BUILT.get(key, ()))
    if error["type"] == "missing":
        return Problem(key, f"is missing, needs {needed}")
    if error["type"] == "finite_number":
        needed = needed.replace("a number", "a finite number", 1)
    value = _find(document, path)
    kind = " (text)" if isinstance(value, str) and error["type"].endswith("_type") else ""
    return Problem(key, f"is {_told(value)}{kind}, needs {needed}")


def _find(document: object, path: Sequence[str]) -> object:
    for part in path:
        document = document.get(part) if isinstance(document, dict) else None
    return document


def _told(value: object) -> str:
    """Return ``value`` as a problem quotes it: text in quotes, at most 60 characters."""
    text = repr(value) if isinstance(value, str) else json.dumps(value)
    return text if len(text) <= 60 else f"{text[:57]}..."


def _place(key: str) -> int:
    """Return where ``key``, or the section it would belong to, stands in the job file."""
    known = known_prefix(key.split("."))
    return list(KEYS).index(known) if known else len(KEYS)
