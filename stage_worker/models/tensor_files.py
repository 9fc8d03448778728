"""Tensors that lie in several safetensors files of one folder, each read only when it is asked for."""

from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path
from types import TracebackType
from typing import Any, Self

import torch
from safetensors import SafetensorError, safe_open


class WeightsError(ValueError):
    """Weights that a model cannot be filled with."""


class TensorFiles:
    """Use as a context manager: files stay open until its end."""

    def __init__(self, folder: Path, file_of: Mapping[str, str]) -> None:
        """Take the file in ``folder`` that each tensor lies in."""
        self.folder = folder
        self._file_of = file_of
        self._open: dict[str, Any] = {}
        self._stack = ExitStack()

    @classmethod
    def of(cls, folder: Path, files: Sequence[str]) -> "TensorFiles":
        """List the tensors of ``files``, of which each has its own.

        Raises:
            WeightsError: a file is missing or damaged, or two hold a tensor of one name.
        """
        file_of: dict[str, str] = {}
        for file in files:
            for name in _names_in(folder / file):
                if name in file_of:
                    raise WeightsError(f"{folder} has {name} in {file_of[name]} and in {file}; one of them is foreign")
                file_of[name] = file
        return cls(folder, file_of)

    def __enter__(self) -> Self:
        """Keep files open until the block ends."""
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Close the files."""
        self._open.clear()
        self._stack.close()

    def __contains__(self, name: str) -> bool:
        """Whether there is a tensor of that name."""
        return name in self._file_of

    def __iter__(self) -> Iterator[str]:
        """Yield the names of all tensors."""
        return iter(self._file_of)

    def file_of(self, name: str) -> Path:
        """Return the file that a tensor lies in."""
        return self.folder / self._file_of[name]

    def shape(self, name: str) -> tuple[int, ...]:
        """Return the shape of a tensor without reading its values.

        Raises:
            WeightsError: its file is damaged.
        """
        with self._reading(name) as file:
            return tuple(file.get_slice(name).get_shape())

    def element_type(self, name: str) -> str:
        """Return what the file calls the type of a tensor's elements, such as ``BF16``.

        Raises:
            WeightsError: its file is damaged.
        """
        with self._reading(name) as file:
            return str(file.get_slice(name).get_dtype())

    def read(self, name: str) -> torch.Tensor:
        """Return a tensor, on the CPU.

        Raises:
            WeightsError: its file is damaged.
        """
        with self._reading(name) as file:
            tensor: torch.Tensor = file.get_tensor(name)
        return tensor

    @contextmanager
    def _reading(self, name: str) -> Iterator[Any]:
        file = self._file_of[name]
        try:
            if file not in self._open:
                self._open[file] = self._stack.enter_context(safe_open(self.folder / file, framework="pt"))
            yield self._open[file]
        except (OSError, SafetensorError) as error:
            raise WeightsError(f"{self.folder / file} cannot be read: {error}") from error


def _names_in(path: Path) -> list[str]:
    try:
        with safe_open(path, framework="pt") as file:
            return list(file.keys())
    except (OSError, SafetensorError) as error:
        raise WeightsError(f"{path} cannot be read: {error}") from error
