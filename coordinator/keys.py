"""The keys of the job file as its schema has them: which there are, what each takes, which one is nearest."""

import difflib
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from coordinator.sections import JobSpec

Node = Mapping[str, Any]
"""A piece of JSON Schema."""


def _resolved(node: Node, definitions: Mapping[str, Node]) -> Node:
    reference = node.get("$ref")
    return definitions[reference.rpartition("/")[2]] if reference else node


def _nodes(node: Node, definitions: Mapping[str, Node], prefix: str = "") -> Iterator[tuple[str, Node]]:
    for name, child in node["properties"].items():
        resolved = _resolved(child, definitions)
        yield f"{prefix}{name}", resolved
        if "properties" in resolved:
            yield from _nodes(resolved, definitions, f"{prefix}{name}.")


_SCHEMA: Node = JobSpec.model_json_schema(by_alias=True)
_DEFINITIONS: Mapping[str, Node] = _SCHEMA["$defs"]
KEYS: Mapping[str, Node] = dict(_nodes(_SCHEMA, _DEFINITIONS))
"""Every key by its dotted path, sections included, in the order of the job file."""


def known_prefix(path: Sequence[object]) -> str:
    """Return the longest key that ``path`` leads to or through; empty where its first part is no key."""
    keys = (".".join(map(str, path[:length])) for length in range(len(path), 0, -1))
    return next((key for key in keys if key in KEYS), "")


def expected(key: str, *, values: Sequence[object] = ()) -> str:
    """Return what ``key`` takes, in words: ``an integer of at least 1, or null``.

    ``values`` are the only ones that are taken, where not all are.
    """
    return _words(KEYS[key], ["null" if value is None else value for value in values])


def _words(node: Node, values: Sequence[object] = ()) -> str:
    node = _resolved(node, _DEFINITIONS)
    if "anyOf" in node and not values:
        return ", or ".join(_words(choice) for choice in node["anyOf"])
    if values or "enum" in node or "const" in node:
        members = values or node.get("enum") or [node["const"]]
        return f"one of {', '.join(map(str, members))}" if len(members) > 1 else f"the value {members[0]}"
    return _TYPES[node["type"]] + _limits(node)


_TYPES = {
    "integer": "an integer",
    "number": "a number",
    "boolean": "true or false",
    "string": "text",
    "array": "a list",
    "object": "a mapping of keys",
    "null": "null",
}
"""What each JSON type is called."""


def _limits(node: Node) -> str:
    """Return what ``node`` asks beyond its type, beginning with a space, or nothing."""
    if "examples" in node:
        return f" such as {', '.join(node['examples'])}"
    if "pattern" in node:
        return f" that matches {node['pattern']}"
    if node["type"] == "string":
        return f" of {node['minLength']} to {node['maxLength']} characters"
    if node["type"] == "array":
        return f", each entry {_words(node['items'])}"
    if "minimum" in node and "maximum" in node:
        return f" from {node['minimum']} to {node['maximum']}"
    said = " and ".join(f"{words} {node[bound]}" for bound, words in _BOUNDS.items() if bound in node)
    return f" of {said}" if said else ""


_BOUNDS = {
    "minimum": "at least",
    "exclusiveMinimum": "more than",
    "maximum": "at most",
    "exclusiveMaximum": "less than",
}


def nearest(path: str) -> tuple[str, ...]:
    """Return the key most like ``path``, which is none; and the one of the same section, if it is close too.

    The same name in another section counts as nearest.
    """
    section, _, name = path.rpartition(".")
    siblings = [key for key in KEYS if key.rpartition(".")[0] == section]
    leaves = [key for key, node in KEYS.items() if "properties" not in node]

    def likeness(key: str) -> float:
        return _ratio(name, key.rpartition(".")[2]) + _ratio(path, key)

    best = max({*leaves, *siblings}, key=lambda key: (likeness(key), key))
    close = difflib.get_close_matches(name, [key.rpartition(".")[2] for key in siblings], n=1)
    return tuple(dict.fromkeys([*(f"{section}.{each}" if section else each for each in close), best]))


def _ratio(one: str, other: str) -> float:
    return difflib.SequenceMatcher(None, one, other, autojunk=False).ratio()
