"""Keys of a job that are none, and documents of any kind."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from coordinator.keys import KEYS, nearest
from coordinator.problem import SpecError
from coordinator.spec import parse_spec

GOOD = {"name": "job", "model": {"config": {"model_type": "bert"}}, "data": {"task": "demo"}}


def problems(document: dict[str, object]) -> dict[str, str]:
    with pytest.raises(SpecError) as caught:
        parse_spec(document)
    return {problem.key: problem.message for problem in caught.value.problems}


@pytest.mark.parametrize(
    ("unknown", "suggested"),
    [
        ("train.learning_rat", ("train.learning_rate",)),
        ("train.epoch", ("train.epochs",)),
        ("learning_rate", ("train.learning_rate",)),  # the key exists, in a section
        ("pp", ("parallel.pp",)),
        ("seed", ("train.seed",)),
        ("eval.learning_rate", ("train.learning_rate",)),  # in another section
        ("train.batch_size", ("train.global_batch_size", "eval.batch_size")),  # both are near
        ("schedul", ("schedule",)),
        ("schedul.name", ("schedule.name",)),
        ("train.loss_scal", ("train.loss_scale",)),
        ("train.loss_scale.init", ("train.loss_scale.initial",)),
        ("data.max_seq_length", ("data.max_length",)),
    ],
)
def test_nearest_key_of_a_slip_is_the_key_that_was_meant(unknown: str, suggested: tuple[str, ...]) -> None:
    assert nearest(unknown) == suggested


def test_nearest_key_of_anything_is_a_key() -> None:
    assert all(key in KEYS for unknown in ("zzz", "train.zzz", "", "a.b.c.d", "train.fp16") for key in nearest(unknown))


def test_spec_with_an_unknown_key_is_refused_with_the_nearest_one() -> None:
    assert problems({**GOOD, "train": {"epoch": 3}}) == {
        "train.epoch": "is no key of the job file; the nearest is train.epochs"
    }


def test_spec_with_an_unknown_section_is_refused_with_the_nearest_one() -> None:
    assert problems({**GOOD, "schedul": {"name": "gpipe"}}) == {
        "schedul": "is no key of the job file; the nearest is schedule"
    }


def test_spec_with_a_dotted_key_is_told_to_write_a_section() -> None:
    with pytest.raises(SpecError) as caught:
        parse_spec({**GOOD, "train.epochs": 3})
    assert str(caught.value) == "train.epochs: is written with a dot in one key; write a section with a key in it"


def test_spec_error_quotes_a_key_of_control_characters_on_one_line() -> None:
    with pytest.raises(SpecError) as caught:
        parse_spec({**GOOD, "\x1b[31m\n": 3})
    assert str(caught.value).startswith("\\x1b[31m\\n: is no key of the job file")


JSON_VALUES = (
    st.none()
    | st.booleans()
    | st.integers()
    | st.just(10**400)
    | st.floats()
    | st.text(max_size=4)
    | st.sampled_from(["sst2", "demo", "1f1b", "hub", "/x", "full", "eager"])
    | st.lists(st.integers(-2, 5), max_size=3)
)
NAMES = sorted({part for key in KEYS for part in key.split(".")})
SECTIONS = st.dictionaries(st.sampled_from(NAMES) | st.text(max_size=3), JSON_VALUES, max_size=5)


@given(st.dictionaries(st.sampled_from(NAMES) | st.text(max_size=3), JSON_VALUES | SECTIONS, max_size=9))
@settings(deadline=None)
def test_spec_of_any_document_is_taken_or_refused_with_one_line_a_problem(document: dict[str, object]) -> None:
    try:
        parse_spec(document)
    except SpecError as error:
        lines = str(error).splitlines()
        problems_told = len(error.problems)
    else:
        return
    assert len(lines) == problems_told > 0
