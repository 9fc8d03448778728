"""YAML 1.2 as plain data, with the line of every key. Refuses what a job file has no use for.

``1e-5`` is a number, ``on`` is text, ``010`` is ten and a date is text, as YAML 1.2 has them.
"""

import re
from collections.abc import Mapping
from dataclasses import dataclass

from ruamel.yaml import YAML
from ruamel.yaml.error import MarkedYAMLError, YAMLError
from ruamel.yaml.nodes import MappingNode, Node, ScalarNode, SequenceNode

from coordinator.spec import MAX_DEPTH

MAX_NODES = 100_000
"""How many values and keys a text may have, every alias counted out."""

_TAG = "tag:yaml.org,2002:"
_SCALARS = frozenset(f"{_TAG}{name}" for name in ("null", "bool", "int", "float", "str"))
_OTHER_VERSION = re.compile(r"^%YAML(?![ \t]+1\.2[ \t]*(#.*)?$).*$", re.MULTILINE)


class YamlError(ValueError):
    """Text that is no YAML 1.2, or holds what is not taken; `line` is where, from 1, or 0 where that is unknown."""

    def __init__(self, message: str, *, line: int = 0) -> None:
        super().__init__(message)
        self.line = line


@dataclass(frozen=True, slots=True)
class YamlText:
    """What a text says."""

    value: object
    """None, bool, int, float, str, and lists and dicts of them with text keys."""
    lines: Mapping[str, int]
    """Line of each key, from 1, by its dotted path."""


def read_yaml(text: str) -> YamlText:
    """Return what ``text`` says.

    Raises:
        YamlError: It is no YAML 1.2; a key stands twice or is no text; it has a tag other than YAML's plain ones,
            a merge key, or more than one document; or it is too large or too deep.
    """
    if found := _OTHER_VERSION.search(text):
        raise YamlError(f"{found[0]!r} is not taken, only YAML 1.2 is", line=text.count("\n", 0, found.start()) + 1)
    yaml = YAML(typ="safe", pure=True)
    try:
        node = yaml.compose(text)
    except MarkedYAMLError as error:
        raise _yaml_error(error) from None
    except YAMLError as error:
        raise YamlError(f"is not YAML: {_one_line(str(error))}") from None
    except RecursionError:
        raise YamlError(f"is nested too deep, at most {MAX_DEPTH} levels are allowed") from None
    if node is None:
        return YamlText(None, {})
    reader = _Reader(yaml)
    return YamlText(reader.value(node, ()), reader.lines)


class _Reader:
    """Turns the nodes of one text into values."""

    def __init__(self, yaml: YAML) -> None:
        self._yaml = yaml
        self._num_nodes = 0
        self.lines: dict[str, int] = {}

    def value(self, node: Node, path: tuple[str, ...], depth: int = 0) -> object:
        self._num_nodes += 1
        if self._num_nodes > MAX_NODES:
            raise YamlError(f"has more than {MAX_NODES} values, aliases counted out", line=_line(node))
        if depth > MAX_DEPTH:  # also where an alias holds itself
            raise YamlError(f"is nested too deep, at most {MAX_DEPTH} levels are allowed", line=_line(node))
        match node:
            case MappingNode(tag="tag:yaml.org,2002:map"):
                return self._mapping(node, path, depth)
            case SequenceNode(tag="tag:yaml.org,2002:seq"):
                return [self.value(child, path, depth + 1) for child in node.value]
            case ScalarNode():
                return self._scalar(node)
        raise YamlError(f"tag {node.tag} is not taken", line=_line(node))

    def _mapping(self, node: MappingNode, path: tuple[str, ...], depth: int) -> dict[str, object]:
        mapping: dict[str, object] = {}
        for key_node, child in node.value:
            key = self._scalar(key_node) if isinstance(key_node, ScalarNode) else None
            if not isinstance(key, str):
                raise YamlError("has a key that is no text; put it in quotes", line=_line(key_node))
            if key in mapping:
                raise YamlError(f"key {'.'.join((*path, key))} stands twice in one mapping", line=_line(key_node))
            self.lines.setdefault(".".join((*path, key)), _line(key_node))
            mapping[key] = self.value(child, (*path, key), depth + 1)
        return mapping

    def _scalar(self, node: ScalarNode) -> object:
        if node.tag == f"{_TAG}timestamp":  # dates are no part of YAML 1.2's core schema
            return node.value
        if node.tag == f"{_TAG}merge":
            raise YamlError("the merge key << is not taken; write the keys out", line=_line(node))
        if node.tag not in _SCALARS:
            raise YamlError(f"tag {node.tag} is not taken", line=_line(node))
        try:
            return self._yaml.constructor.construct_object(node)
        except ValueError as error:  # an int tag on text, or an int of thousands of digits
            raise YamlError(f"is not of its type: {_one_line(str(error))}", line=_line(node)) from None


def _yaml_error(error: MarkedYAMLError) -> YamlError:
    mark = error.problem_mark or error.context_mark
    message = ", ".join(part for part in (error.context, error.problem) if part)
    return YamlError(f"is not YAML: {_one_line(message)}", line=mark.line + 1 if mark else 0)


def _line(node: Node) -> int:
    return int(node.start_mark.line) + 1


def _one_line(text: str) -> str:
    return " ".join(text.split())
