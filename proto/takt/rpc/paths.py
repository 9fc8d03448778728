"""Containment of paths that other people name."""

from collections.abc import Iterable
from pathlib import Path


def is_under(path: str | Path, roots: Iterable[str | Path]) -> bool:
    """Whether ``path``, all links resolved, is one of ``roots`` or lies below one."""
    real = Path(path).resolve()
    return any(real.is_relative_to(Path(root).resolve()) for root in roots)
