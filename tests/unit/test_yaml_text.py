"""YAML as job files have it (case H80)."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from coordinator.yaml_text import YamlError, read_yaml


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("1e-5", 0.00001),
        ("2e-5", 0.00002),
        ("1E5", 100000.0),
        (".5", 0.5),
        ("010", 10),
        ("0o10", 8),
        ("0x1F", 31),
        ("1_000", 1000),
        ("on", "on"),
        ("yes", "yes"),
        ("true", True),
        ("1:30", "1:30"),
        ("190:20:30", "190:20:30"),
        ("2020-01-01", "2020-01-01"),
        ("2020-01-01 10:00:00", "2020-01-01 10:00:00"),
        ("'8'", "8"),
        ("~", None),
        ("", None),
        ("[1, a, {b: c}]", [1, "a", {"b": "c"}]),
    ],
)
def test_yaml_value_is_read_as_yaml_1_2_has_it(text: str, value: object) -> None:
    assert read_yaml(f"key: {text}").value == {"key": value}
    assert type(read_yaml(f"key: {text}").value["key"]) is type(value)  # type: ignore[index]


@pytest.mark.parametrize(
    ("text", "line", "message"),
    [
        ("a: 1\nb: 2\na: 3\n", 3, "key a stands twice in one mapping"),
        ("a:\n  b: 1\n  b: 2\n", 3, "key a.b stands twice in one mapping"),
        ("a: 1\nb: !!python/object/apply:os.system [id]\n", 2, "tag tag:yaml.org,2002:python/object/apply:os.system"),
        ("a: !!python/name:os.system\n", 1, "tag tag:yaml.org,2002:python/name:os.system is not taken"),
        ("a: !secret x\n", 1, "tag !secret is not taken"),
        ("a: !!binary aGk=\n", 1, "tag tag:yaml.org,2002:binary is not taken"),
        ("a: !!set {x}\n", 1, "tag tag:yaml.org,2002:set is not taken"),
        ("a: !!int x\n", 1, "is not of its type: invalid literal"),
        (f"a: {'9' * 5000}\n", 1, "is not of its type: Exceeds the limit"),
        ("a: &x {b: 1}\nc: {<<: *x}\n", 2, "the merge key << is not taken"),
        ("1: 2\n", 1, "has a key that is no text"),
        ("[a]: 2\n", 1, "has a key that is no text"),
        ("%YAML 1.1\n---\na: on\n", 1, "'%YAML 1.1' is not taken, only YAML 1.2 is"),
        ("%YAML 1.3\n---\na: on\n", 1, "'%YAML 1.3' is not taken, only YAML 1.2 is"),
        ("a: 1\n---\nb: 2\n", 2, "expected a single document"),
        ("a: 1\nb: {c: 2\n", 3, "expected ',' or '}'"),
        ("a: 1\n\tb: 2\n", 2, "is not YAML"),
        ("a: *nothing\n", 1, "found undefined alias"),
        ("a: &a [*a]\n", 1, "nested too deep, at most 32 levels"),
        ("a: \0\n", 0, "is not YAML"),
        ("[" * 100_000, 0, "nested too deep, at most 32 levels"),
    ],
)
def test_yaml_that_is_not_taken_is_refused_with_its_line(text: str, line: int, message: str) -> None:
    with pytest.raises(YamlError) as caught:
        read_yaml(text)
    assert message in str(caught.value)
    assert "\n" not in str(caught.value)
    assert caught.value.line == line


def test_yaml_whose_aliases_multiply_is_refused() -> None:
    levels = [f"l{n}: &l{n} [{', '.join([f'*l{n - 1}'] * 10)}]" for n in range(1, 10)]
    with pytest.raises(YamlError, match="has more than 100000 values, aliases counted out"):
        read_yaml("\n".join(["l0: &l0 x", *levels]))


@given(st.text(alphabet="abc:{}[],-&*!<>|%'\"#\n \t0123.?~\\", max_size=40) | st.text(max_size=20))
@settings(deadline=None)
def test_yaml_of_any_text_is_read_or_refused_in_one_line(text: str) -> None:
    try:
        read_yaml(text)
    except YamlError as error:
        message = str(error)
    else:
        return
    assert message
    assert "\n" not in message


def test_yaml_with_an_alias_has_the_value_at_both_places() -> None:
    assert read_yaml("a: &x [1, 2]\nb: *x\n").value == {"a": [1, 2], "b": [1, 2]}
