"""A BERT of next to no size, for tests of the engine and of loading."""

from typing import Any

from tests.unit import tiny_models
from tests.unit.tiny_models import CPU, NEEDS, load_tiny, slice_of

__all__ = ["CPU", "NEEDS", "VALUES", "load_tiny", "slice_of"]

VALUES: dict[str, Any] = {"model_type": "bert", **tiny_models.VALUES["bert"]}
