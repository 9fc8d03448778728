"""Which model families Takt can train."""

from stage_worker.models.family import Family

SUPPORTED = ("bert",)
"""Values of ``model_type``."""


class UnsupportedModelError(ValueError):
    """A model that no family describes, or that the family cannot be cut from."""


def check_supported(model_type: str) -> None:
    """Raise UnsupportedModelError where no family describes ``model_type``; imports no modelling code."""
    if model_type not in SUPPORTED:
        raise UnsupportedModelError(f"model_type {model_type!r} is not supported; use one of: {', '.join(SUPPORTED)}")


def family_of(model_type: str) -> Family:
    """Return the family; imports its modelling code, which takes seconds.

    Raises:
        UnsupportedModelError: no family describes ``model_type``.
    """
    check_supported(model_type)
    match model_type:
        case "bert":
            from stage_worker.models.bert import BERT  # noqa: PLC0415  the import is the cost

            return BERT
        case _:
            raise AssertionError(f"{model_type} is listed but has no family")
